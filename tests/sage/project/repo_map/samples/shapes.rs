pub struct S<T> { a: T }
impl<T> Trait for S<T> {
    pub fn new(x: i32) -> Self { S { a } }
}
pub trait Trait { fn f(&self); }
mod inner { pub fn g() {} }
macro_rules! m { () => {} }
enum E { A }
