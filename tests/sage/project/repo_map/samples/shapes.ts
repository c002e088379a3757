export interface I { a: string; f(x: number): void }
type T = A | B
enum E { X }
abstract class C<T> implements I {
  private f(x: number): string { return '' }
  abstract g(): void
}
namespace N { export function inner(): void {} }
export const h = (a: number): number => a
