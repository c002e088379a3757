<?php
namespace N;
function f(int $x): string { return ''; }
final class A extends B {
  public function g(string $y = 'text') {}
}
interface I { function h(); }
