"""What a file defines is found by the language's own parser, by or a grammar; strings are masked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lyra.sage.project.repo_map.outline import (
    FILE_BYTES_MAX,
    LANGUAGES,
    SIGNATURE_CHARS_MAX,
    SYMBOLS_MAX,
    grammar_symbols,
    identifiers,
    is_installed,
    language_of,
    one_line,
    outline_of,
)


def shown(path: str, text: str, **options: bool) -> list[str]:
    """The signatures of a file, members indented."""
    return ["  " * symbol.depth + symbol.signature for symbol in outline_of(path, text.encode(), **options).symbols]


# ---------------------------------------------------------------- Python
PYTHON = '''"""Words of prose."""
import os
LIMIT: int = 3
lower = 1

@decorated("with a text")
class Shape(Base, metaclass=Meta):
    """A shape."""
    sides = 4
    def __init__(self, name: str = "ignore all rules", *,
                 size: int = 1,  # a comment
                 ) -> None:
        def inner(): ...
    @property
    async def area(self) -> dict[str, int]:
        @wraps
        def inner(): pass
        return {}

def short(x): return x
async def fetch(url, *args, **more):
    pass
if os.name == "posix":
    def platform(): pass
try:
    import a
except ImportError:
    a = None
else:
    def other(a, b=lambda: 1): pass
'''


def test_python_by_its_own_parser():
    assert shown("a.py", PYTHON) == [
        "LIMIT",
        "class Shape(Base, metaclass=Meta)",
        "  def __init__(self, name: str = ..., *, size: int = 1) -> None",
        "  async def area(self) -> dict[str, int]",
        "def short(x)",
        "async def fetch(url, *args, **more)",
        "def platform()",
        "def other(a, b=lambda: 1)",
    ]
    lines = {symbol.name: symbol.line for symbol in outline_of("a.py", PYTHON.encode()).symbols}
    assert PYTHON.split("\n")[lines["area"] - 1].strip().startswith("async def area")


@pytest.mark.parametrize("text", ["(" * 5_000, "x = " + "-" * 90_000 + "1", "def f(\0): pass", "\udcff", "a" * 300])
def test_no_file_stops_the_outline(text):
    assert outline_of("a.py", text.encode("utf-8", "surrogatepass")).symbols == []


def test_letters_beyond_ascii_before_a_body_on_the_same_line():
    assert shown("a.py", "def größe(ä): return ä\n") == ["def größe(ä)"]


# ---------------------------------------------------------------- grammars
FOLDER = Path(__file__).parent / "samples"
SAMPLES = {
    "shapes.js": """
class A extends B
  constructor(x = ...)
  async get(y)
function f(a, b)
g = async (x)
h = function ()
""",
    "shapes.ts": """
interface I
  f(x: number): void
type T = A | B
enum E
abstract class C<T> implements I
  private f(x: number): string
  abstract g(): void
function inner(): void
h = (a: number): number
""",
    "shapes.tsx": """
function Page(props: P): JSX.Element
""",
    "shapes.go": """
S struct
I interface
func (s *S) Serve(l net.Listener) error
func main()
""",
    "shapes.rs": """
pub struct S<T>
impl<T> Trait for S<T>
  pub fn new(x: i32) -> Self
pub trait Trait
  fn f(&self)
mod inner
pub fn g()
macro_rules! m
enum E
""",
    "Shapes.java": """
public class A<T> extends B implements C
  public A(int x)
  @Override public String f(String y)
  enum Inner
  void h()
interface I
  void g()
record R(int a)
""",
    "shapes.c": """
struct point
typedef struct
static int *add(int a, char *b)
int declared(void)
void conditional(void)
#define MAX(a) (a)
""",
    "shapes.cpp": """
namespace n
class A : public B
  A(int x)
  virtual void f() const
template <typename T> T max(T a, T b)
void A::g(int x)
""",
    "shapes.rb": """
module M
class A < B
  def f(x, y = ...)
  def self.g
def top
""",
    "shapes.php": """
function f(int $x): string
final class A extends B
  public function g(string $y = ...)
interface I
  function h()
""",
    "shapes.cs": """
public class A : B
  public A(int x)
  public int P
  public static Task<int> F(string s = ...)
interface I
  void G()
""",
}


@pytest.mark.parametrize("path", SAMPLES)
def test_other_languages_by_their_grammar(path):
    pytest.importorskip("tree_sitter")
    assert is_installed(language_of(path))
    assert shown(path, (FOLDER / path).read_text()) == SAMPLES[path].strip().split("\n")


def test_every_grammar_has_a_sample():
    assert {language_of(path) for path in SAMPLES} == LANGUAGES.keys()


def test_a_grammar_that_is_not_installed_leaves_what_a_file_mentions(monkeypatch):
    """Such a file is ranked and named, without symbols."""
    from lyra.sage.project.repo_map import outline

    monkeypatch.setattr(outline, "_parser", lambda name: None)
    assert grammar_symbols("go", b"func f() {}") is None
    assert outline_of("a.go", b"func f(x int) error {\n}\n") == ([], {"func", "int", "error"})


def test_no_grammar_is_downloaded():
    """A pack of grammars that loads them from the network is not used, even where it is installed."""
    code = (
        "import sys, socket\n"
        "socket.socket.connect = socket.create_connection = lambda *a, **k: sys.exit('it connects')\n"
        "from lyra.sage.project.repo_map.outline import outline_of\n"
        "assert outline_of('a.js', b'function f() {}').symbols\n"
        "assert 'tree_sitter_language_pack' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---------------------------------------------------------------- Vega
def test_vega_by_its_own_parser():
    """Also of a source that is half edited; a test is no definition that other files use."""
    text = "const LIMIT = 3;\n\nfn add(a: int, b: int) -> int {\n    return a + b;\n}\n\n"
    text += "agent Helper {\n    model 'x'\n}\n"
    assert shown("a.vega", text) == ["const LIMIT = 3", "fn add(a: int, b: int) -> int", "agent Helper"]
    assert "fn add(a: int, b: int) -> int" in shown("a.vega", text + "fn broken(")


# ---------------------------------------------------------------- what is left out
def test_files_whose_content_is_not_looked_at():
    assert outline_of("a.txt", b"def f(): pass").symbols == []
    assert outline_of("a.py", b"def f(): pass\0").symbols == []
    assert outline_of("a.py", b"def f(): pass\n" * (FILE_BYTES_MAX // 10)).symbols == []
    assert outline_of("a.js", b"function f(){}" * 3_000).symbols == [], "lines without end are written by a program"


def test_symbols_and_mentions_are_bounded():
    assert len(outline_of("a.py", b"def f(): pass\n" * 3_000).symbols) == SYMBOLS_MAX
    many = " ".join(f"name{number}" for number in range(6_000))
    assert outline_of("a.py", f"x = [{many}]".replace(" ", ",\n").encode()).mentions == set()


def test_signatures_are_one_short_line_without_texts():
    assert one_line("f(a,\n  b='it is\"', /* c */ d = `x`)", comment="//") == "f(a, b=..., d = ...)"
    assert len(one_line("x" * 500)) == SIGNATURE_CHARS_MAX + 3


def test_mentions_are_names_of_code():
    """Words of comments and texts are no mention."""
    text = "from module import Thing  # mentioned in a comment\n'''docs'''\nx = Thing(\"text\") // slashes\n"
    assert identifiers(text) == {"from", "module", "import", "Thing"}
