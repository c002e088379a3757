namespace n {
class A : public B {
 public:
  A(int x);
  virtual void f() const;
  int data;
};
template <typename T> T max(T a, T b) { return a; }
void A::g(int x) {}
}
