package a;
public class A<T> extends B implements C {
  public A(int x) {}
  @Override
  public String f(String y) { return y; }
  enum Inner { X; void h() {} }
}
interface I { void g(); }
record R(int a) {}
