module M
  class A < B
    def f(x, y = 'text')
    end
    def self.g; end
  end
end
def top
end
