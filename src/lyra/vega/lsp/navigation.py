"""From a name to where it is declared, and back to everywhere it is used; across files that import each other."""

from __future__ import annotations

from lyra.vega.lsp.project import Place, Project
from lyra.vega.lsp.symbols import SourceSymbol


def meaning(project: Project, path: str, offset: int) -> tuple[str, SourceSymbol] | None:
    """The symbol under an offset and the file that declares it."""
    index = project.index(path)
    if index is None:
        return None
    member = index.member_at(offset)
    if member is not None:
        target = project.meaning(member, path)
        if target is not None:
            return target
    use = index.use_at(offset)
    return None if use is None else (path, use.symbol)


def definition(project: Project, path: str, offset: int) -> Place | None:
    """Where the name under an offset is declared; of an import, the file."""
    known = project.analysis(path)
    for node in known.imports() if known is not None else ():
        if node.at <= offset <= node.end:
            target = project.target(node.target, path)
            return Place(target, 0, 0) if project.text(target) is not None else None
    meant = meaning(project, path, offset)
    if meant is None:
        return None
    file, symbol = meant
    return Place(file, symbol.at, symbol.end)


def references(project: Project, path: str, offset: int, *, with_declaration: bool = True) -> list[Place]:
    """Everywhere a symbol is written, in this file and in those that import it."""
    target = meaning(project, path, offset)
    if target is None:
        return []
    file, symbol = target
    index = project.index(file)
    places = [Place(file, *span) for span in index.places(symbol)] if index is not None else []
    if not with_declaration:
        places = [place for place in places if place.at != symbol.at]
    owner = symbol.owner if symbol.role == "parameter" else symbol
    if owner is not None and owner.is_top and owner.role != "import":
        for other in project.files():
            if other != file:
                places += _elsewhere(project, other, file, symbol, owner)
    return places


def _elsewhere(project: Project, path: str, file: str, symbol: SourceSymbol, owner: SourceSymbol) -> list[Place]:
    """The uses in one other file; one that does not even hold the word is not read closely."""
    text = project.text(path)
    if text is None or symbol.name not in text or "import" not in text:
        return []
    index = project.index(path)
    parameter = symbol.name if symbol is not owner else ""
    return [
        Place(path, member.at, member.end)
        for member in (index.members if index is not None else ())
        if member.module is not None
        and member.name == owner.name
        and member.parameter == parameter
        and project.imported(member.module, path) == file
    ]


def highlights(project: Project, path: str, offset: int) -> list[tuple[int, int]]:
    """The uses in this file alone."""
    return [(place.at, place.end) for place in references(project, path, offset) if place.path == path]
