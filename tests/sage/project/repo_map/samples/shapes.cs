namespace N {
  public class A : B {
    public A(int x) {}
    public int P { get; set; }
    public static Task<int> F(string s = "text") { return null; }
  }
  interface I { void G(); }
}
