export default class A extends B {
  constructor(x = 'text') { }
  async get(y) { function no() {} }
}
export function f(a, b) { return 1 }
const g = async (x) => { }
const notAFunction = 3
let h = function () {}
