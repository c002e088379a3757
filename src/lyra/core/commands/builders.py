"""Programs that build software and take settings as words: swift, zig, dotnet, msbuild, xcodebuild.

A setting may name a program (`xcodebuild CC=rm`, `dotnet build -p:PreBuildEvent='rm x'`) or a file that is written, and
there is no end to the settings. So for a deny each of their arguments may begin a command, as for an unknown program
(`ANY_WORD`); an allow with a wildcard has to name a setting, the options in `BUILDERS`, and each word that may be a
file to run or a subcommand. It covers the subcommands that only build or test. Where an option comes first, it is not
known which words are values of options, and each of them may be the subcommand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from lyra.core.commands.option_reach import ProgramOptions, Reach, words_of

_SWIFT: Final = ProgramOptions(
    dashes_run=words_of("-driver-use-frontend-path -ld-path -use-ld -load-plugin-executable"),
    dashes_unread=words_of("-e -wrapper"),
    dashes_wide=words_of(
        "-tools-directory -load-plugin-library -load-pass-plugin -plugin-path -external-plugin-path -resource-dir -sdk"
        " -Xcc -Xcxx -Xlinker -Xclang-linker -Xfrontend -Xllvm -Xswiftc -working-directory -output-file-map"
        " -emit-module-path -emit-dependencies-path -serialize-diagnostics-path -index-store-path -emit-tbd-path"
        " -emit-objc-header-path -emit-module-interface-path -emit-loaded-module-trace-path -module-cache-path"
        " -save-optimization-record-path -in-process-plugin-server-path -stats-output-dir -trace-stats-events"
        " -emit-const-values-path -emit-module-source-info-path -emit-private-module-interface-path -vfsoverlay"
    ),
    long_wide=words_of(
        "toolchain package-path scratch-path build-path cache-path config-path security-path sdk swift-sdk"
        " swift-sdks-path xunit-output event-stream-output-path disable-sandbox allow-writing-to-directory"
        " allow-writing-to-package-directory allow-network-connections output chdir multiroot-data-file netrc-file"
    ),
    wide="C",
)
_ZIG: Final = ProgramOptions(  # `zig cc` is a C compiler, with the options of one
    commas=True,
    dashes_run=words_of("-wrapper"),
    dashes_wide=words_of(
        "-specs -fplugin -MF -MJ -Xlinker -Xassembler -Xpreprocessor -Xclang -serialize-diagnostics -dependency-file"
        " -index-store-path -femit-bin -femit-asm -femit-llvm-ir -femit-llvm-bc -femit-h -femit-docs -femit-implib"
        " -fuse-ld -ld-path -p"
    ),
    long_runs=words_of("test-cmd ld-path"),
    long_wide=words_of(
        "zig-lib-dir build-runner build-file test-runner libc cache-dir global-cache-dir prefix prefix-exe-dir config"
        " prefix-lib-dir prefix-include-dir sysroot search-prefix serialize-diagnostics save save-exact name"
    ),
    wide="B",
)
_XCODEBUILD: Final = ProgramOptions(
    dashes_wide=words_of(
        "-toolchain -xcconfig -derivedDataPath -resultBundlePath -archivePath -exportPath -exportOptionsPlist"
        " -clonedSourcePackagesDirPath -packageCachePath -testProductsPath -resultStreamPath -skipMacroValidation"
        " -skipPackagePluginValidation -localizationPath -xctestrun -output -importPlatform -sdk -enumerate-tests"
        " -test-enumeration-output-path -scmProvider -authenticationKeyPath -framework -library"
    )
)
BUILDERS: Final[dict[str, ProgramOptions]] = {
    **dict.fromkeys(("swift", "swiftc"), _SWIFT),
    "zig": _ZIG,
    **dict.fromkeys(("dotnet", "msbuild"), ProgramOptions()),
    "xcodebuild": _XCODEBUILD,
}
ANY_WORD: Final = frozenset(BUILDERS)

_SWITCH: Final = re.compile(r"(?:--?|/)([A-Za-z]+)[0-9]?([:=].*)?", re.DOTALL)
_PROPERTIES: Final = words_of("p property rp restoreproperty")
# Switches of MSBuild and options of dotnet that load a library, read other settings or write a file.
_SWITCHES: Final = words_of(
    "l logger dl distributedlogger bl binarylogger fl filelogger flp fileloggerparameters orc outputresultscache pp"
    " preprocess ts targets profileevaluation getresultoutputfile diag settings depsfile runtimeconfig use load exec"
) | words_of(
    "results-directory test-adapter-path artifacts-path configfile tool-path additionalprobingpath additional-deps"
    " output-directory packages runtime-config allow-scripts"
)
_LONG_SWITCH: Final = re.compile(r"--([a-z]+(?:-[a-z]+)+)([:=].*)?", re.DOTALL)
_DOTNET_FLAGS: Final = words_of("-d --diagnostics")
_DOTNET_BUILDS: Final = words_of(
    "add build build-server clean format help list msbuild new nuget pack package project publish reference remove"
    " restore sdk sln solution store test vstest workload"
)
_LIBRARY: Final = (".dll", ".exe")
# In the value of a property: quotes and escapes of the shell and of MSBuild, by which a program's name is not plain.
_DISGUISES: Final = re.compile(r"""["'\\@%`^${]|/\S*[*?\[]""")
_SETTING: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^\]]*\])*=.*", re.DOTALL)
_SWIFT_BUILDS: Final = words_of("build test format help")
_ZIG_RUNS: Final = words_of("run reduce")
_ZIG_STEPS: Final = words_of("install uninstall test")
_ZIG_VALUES: Final = words_of("all new failures line none auto on off")  # of `--summary` and `--color`


def _msbuild(words: Sequence[str]) -> Iterator[Reach]:
    """Properties, which may be commands, switches that load or write files, and files of further switches (`@file`)."""
    for index, word in enumerate(words[1:], 1):
        if word[:1] == "@":
            yield Reach(index + 1, code=True)
            continue
        switch = _SWITCH.fullmatch(word) or _LONG_SWITCH.fullmatch(word)
        name = switch[1].lower() if switch is not None else ""
        if switch is None or (name not in _PROPERTIES and name not in _SWITCHES):
            continue
        through = index + 1 if switch[2] else index + 2
        value = switch[2] or (words[index + 1] if index + 1 < len(words) else "")
        yield Reach(through, code=name in _PROPERTIES and _DISGUISES.search(value) is not None)


def _dotnet(words: Sequence[str]) -> Iterator[Reach]:
    """Yield the switches of MSBuild, subcommands that run a program (an unknown one is the program `dotnet-NAME`), and
    the path of a library that is run."""
    first = next((index for index, word in enumerate(words[1:], 1) if word not in _DOTNET_FLAGS), len(words))
    yield from _running(words, first, _DOTNET_BUILDS)
    for index, word in enumerate(words[1:], 1):
        if word.lower().endswith(_LIBRARY):
            yield Reach(index + 1)
    yield from _msbuild(words)


def _running(words: Sequence[str], first: int, builds: frozenset[str]) -> Iterator[Reach]:
    """Yield the subcommand, if it may run something; behind options every word that may be one."""
    if first >= len(words) or words[first] in builds:
        return
    if words[first][:1] != "-":
        yield Reach(first + 1)
        return
    for index, word in enumerate(words[first:], first):
        if word[:1] != "-":
            yield Reach(index + 1)


def _swift(words: Sequence[str]) -> Iterator[Reach]:
    """Subcommands that run what was built, and scripts."""
    yield from _running(words, 1, _SWIFT_BUILDS)
    yield from _files_of_options(words)


def _files_of_options(words: Sequence[str]) -> Iterator[Reach]:
    for index, word in enumerate(words[1:], 1):
        if word[:1] == "@":
            yield Reach(index + 1, code=True)


def zig_runs(words: Sequence[str]) -> Iterator[Reach]:
    """Subcommands that run something, and steps of `zig build`, which may be named anything."""
    if words[1:2] and words[1] in _ZIG_RUNS:
        yield Reach(2)
    if words[1:2] == ["build"]:
        for index, word in enumerate(words[2:], 2):
            if word == "--" or (word[:1] != "-" and word not in _ZIG_STEPS and word not in _ZIG_VALUES):
                yield Reach(index + 1)


def _xcodebuild(words: Sequence[str]) -> Iterator[Reach]:
    """Build settings: `CC=rm`."""
    for index, word in enumerate(words[1:], 1):
        if _SETTING.fullmatch(word) or (word[:1] == "-" and "=" in word):
            yield Reach(index + 1, code="-wrapper" in word)


BUILDER_JUDGES: Final[dict[str, Callable[[Sequence[str]], Iterator[Reach]]]] = {
    "swift": _swift,
    "swiftc": _files_of_options,
    "dotnet": _dotnet,
    "msbuild": _msbuild,
    "xcodebuild": _xcodebuild,
}
