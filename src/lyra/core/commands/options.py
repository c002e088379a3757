"""Which options of which program run something, read other settings or write anywhere: one row a program.

`option_reach` explains the fields, `programs` applies them to a call. A new row needs no code, only a line in the
tests that shows what it stops.

Programs that build software and take settings as words (swift, zig, dotnet, msbuild, xcodebuild) have functions below.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from lyra.core.commands.option_reach import OptionReach, ProgramOptions, long_of, words_of

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


def _msbuild(words: Sequence[str]) -> Iterator[OptionReach]:
    """Properties, which may be commands, switches that load or write files, and files of further switches (`@file`)."""
    for index, word in enumerate(words[1:], 1):
        if word[:1] == "@":
            yield OptionReach(index + 1, code=True)
            continue
        switch = _SWITCH.fullmatch(word) or _LONG_SWITCH.fullmatch(word)
        name = switch[1].lower() if switch is not None else ""
        if switch is None or (name not in _PROPERTIES and name not in _SWITCHES):
            continue
        through = index + 1 if switch[2] else index + 2
        value = switch[2] or (words[index + 1] if index + 1 < len(words) else "")
        yield OptionReach(through, code=name in _PROPERTIES and _DISGUISES.search(value) is not None)


def _dotnet(words: Sequence[str]) -> Iterator[OptionReach]:
    """Yield the switches of MSBuild, subcommands that run a program (an unknown one is the program `dotnet-NAME`), and
    the path of a library that is run."""
    first = next((index for index, word in enumerate(words[1:], 1) if word not in _DOTNET_FLAGS), len(words))
    yield from _running(words, first, _DOTNET_BUILDS)
    for index, word in enumerate(words[1:], 1):
        if word.lower().endswith(_LIBRARY):
            yield OptionReach(index + 1)
    yield from _msbuild(words)


def _running(words: Sequence[str], first: int, builds: frozenset[str]) -> Iterator[OptionReach]:
    """Yield the subcommand, if it may run something; behind options every word that may be one."""
    if first >= len(words) or words[first] in builds:
        return
    if words[first][:1] != "-":
        yield OptionReach(first + 1)
        return
    for index, word in enumerate(words[first:], first):
        if word[:1] != "-":
            yield OptionReach(index + 1)


def _swift(words: Sequence[str]) -> Iterator[OptionReach]:
    """Subcommands that run what was built, and scripts."""
    yield from _running(words, 1, _SWIFT_BUILDS)
    yield from _files_of_options(words)


def _files_of_options(words: Sequence[str]) -> Iterator[OptionReach]:
    for index, word in enumerate(words[1:], 1):
        if word[:1] == "@":
            yield OptionReach(index + 1, code=True)


def zig_runs(words: Sequence[str]) -> Iterator[OptionReach]:
    """Subcommands that run something, and steps of `zig build`, which may be named anything."""
    if words[1:2] and words[1] in _ZIG_RUNS:
        yield OptionReach(2)
    if words[1:2] == ["build"]:
        for index, word in enumerate(words[2:], 2):
            if word == "--" or (word[:1] != "-" and word not in _ZIG_STEPS and word not in _ZIG_VALUES):
                yield OptionReach(index + 1)


def _xcodebuild(words: Sequence[str]) -> Iterator[OptionReach]:
    """Build settings: `CC=rm`."""
    for index, word in enumerate(words[1:], 1):
        if _SETTING.fullmatch(word) or (word[:1] == "-" and "=" in word):
            yield OptionReach(index + 1, code="-wrapper" in word)


BUILDER_JUDGES: Final[dict[str, Callable[[Sequence[str]], Iterator[OptionReach]]]] = {
    "swift": _swift,
    "swiftc": _files_of_options,
    "dotnet": _dotnet,
    "msbuild": _msbuild,
    "xcodebuild": _xcodebuild,
}


_TAR: Final = ProgramOptions(
    "IF",
    "PTg",
    "fbCgHKLNVXT",
    long_of("checkpoint-action to-command use-compress-program info-script new-volume-script rsh-command rmt-command"),
    long_of("files-from absolute-names index-file listed-incremental volno-file"),
    known=words_of("checkpoint list"),  # --list is not --listed-incremental
    bundle=True,
)
_CC: Final = ProgramOptions(
    commas=True,
    valued="o",
    dashes_run=words_of("-wrapper"),
    dashes_wide=words_of(
        "-specs -fplugin -MF -MJ -aux-info -dumpbase -dumpdir -dumpbase-ext -Xlinker -Xassembler -Xpreprocessor -Xclang"
        " -serialize-diagnostics -index-store-path -dependency-file"
    ),
    long_wide=long_of("serialize-diagnostics config"),
    wide="B",
)
_EDITOR: Final = ProgramOptions(plus=True, unread="cSsuW", long_unread=long_of("cmd"), wide="w")
_NODE: Final = ProgramOptions(
    code="epr",
    long_code=long_of("eval print require import loader experimental-loader"),
    language="javascript",
    leading=True,
    long_wide=words_of(
        "redirect-warnings cpu-prof-name cpu-prof-dir heap-prof-name heap-prof-dir diagnostic-dir report-dir"
        " report-directory report-filename test-reporter test-reporter-destination trace-event-file-pattern env-file"
    ),
)
_PYTHON: Final = ProgramOptions(code="c", valued="WX", language="python", leading=True)
_DUMP: Final = ProgramOptions(
    wide="rT", valued="uphPS", long_wide=long_of("result-file tab log-error defaults-file defaults-extra-file")
)
_HTTPIE: Final = ProgramOptions(
    wide="od", valued="aApsv", long_wide=long_of("output download session session-read-only")
)
_TERRAFORM: Final = ProgramOptions(
    dashes_wide=words_of("-chdir -out -state-out -backup -state -generate-config-out -plugin-dir -config"),
    long_wide=long_of("terragrunt-config terragrunt-working-dir"),
)
_ESLINT: Final = ProgramOptions(
    wide="ocf",
    long_wide=long_of(
        "output-file config rulesdir plugin resolve-plugins-relative-to cache-location cache-file format parser"
    ),
    known=words_of("cache"),
)
_TSC: Final = words_of("outDir outFile declarationDir tsBuildInfoFile generateTrace generateCpuProfile project")
_MYSQL: Final = ProgramOptions(
    code="e",
    long_code=long_of("execute init-command"),
    long_runs=long_of("pager"),
    long_wide=long_of("tee defaults-file defaults-extra-file plugin-dir"),
    language="sql",
)
_LESS: Final = ProgramOptions(
    plus=True,
    unread="k",
    wide="oO",
    valued="bhjpPtTxyzD",
    long_unread=long_of("lesskey-file lesskey-src lesskey-content"),
    long_wide=long_of("log-file LOG-FILE"),
)
_TEX: Final = ProgramOptions(
    dashes_unread=words_of("-shell-escape -enable-write18 -enable-pipes"),
    long_unread=long_of("shell-escape enable-write18 enable-pipes"),
    dashes_wide=words_of("-output-directory -aux-directory -fmt -jobname -recorder -cnf-line"),
    long_wide=long_of("output-directory aux-directory jobname"),
)
_VIDEO: Final = ProgramOptions(
    long_runs=long_of("exec exec-before-download netrc-cmd"),
    long_unread=long_of("downloader external-downloader postprocessor-args use-postprocessor plugin-dirs"),
    long_wide=long_of("config-locations batch-file"),
)
_EVAL_SHORT: Final = ProgramOptions(unread="eE", long_unread=long_of("eval expr print"), leading=True)  # -e CODE
_NPM: Final = ProgramOptions(
    "c",
    "C",
    "w",
    long_of("call script-shell shell editor viewer browser git onload-script"),
    long_of("prefix userconfig globalconfig node-options init-module dir cwd logs-dir cache tmp pack-destination"),
)
_GO_WRITES: Final = (
    "coverprofile cpuprofile memprofile blockprofile mutexprofile trace outputdir test.coverprofile test.cpuprofile"
    " test.memprofile test.blockprofile test.mutexprofile test.trace test.outputdir"
)
_APT: Final = ProgramOptions("o", "c", "t", long_of("option"), long_of("config-file"))
_COPY: Final = ProgramOptions("SDo", "F", "cilPJXlBbR")

OPTIONS: Final[dict[str, ProgramOptions]] = {
    "find": ProgramOptions(
        dashes_run=words_of("-exec -execdir -ok -okdir"),
        dashes_wide=words_of("-delete -fprint -fprint0 -fprintf -fls -files0-from"),
    ),
    **dict.fromkeys(("tar", "gtar", "bsdtar"), _TAR),
    "cpio": ProgramOptions("", "FOI", "", long_of("rsh-command"), long_of("file")),
    "rsync": ProgramOptions(
        "e",
        "MT",
        "f",
        long_of("rsh rsync-path"),
        long_of(
            "daemon config write-batch only-write-batch log-file server files-from backup-dir partial-dir temp-dir"
        ),
        known=words_of("backup partial"),
    ),
    **dict.fromkeys(("scp", "sftp"), _COPY),
    "sort": ProgramOptions("", "o", "kStT", long_of("compress-program"), long_of("output files0-from")),
    "split": ProgramOptions(long_runs=long_of("filter")),
    "shuf": ProgramOptions(wide="o", valued="in", long_wide=long_of("output random-source")),
    **dict.fromkeys(("uniq", "xxd"), ProgramOptions(valued="fsw")),
    "sdiff": ProgramOptions(wide="o", long_wide=long_of("output"), long_runs=long_of("diff-program")),
    "diff3": ProgramOptions(long_runs=long_of("diff-program")),
    **dict.fromkeys(
        ("groff", "troff", "nroff"), ProgramOptions(unread="U")
    ),  # unsafe: `.sy` in its text runs a command
    "iconv": ProgramOptions(wide="o", valued="ft", long_wide=long_of("output")),
    "tree": ProgramOptions(wide="oR", valued="LPIHT"),  # -R with -H writes a file into every folder
    "file": ProgramOptions(wide="C", valued="mfFPe", long_wide=long_of("compile")),
    "base": ProgramOptions(wide="o", long_wide=long_of("output")),  # base64 and base32, of other systems
    "zstd": ProgramOptions(wide="o", valued="DTBM", long_wide=long_of("output-dir-flat output-dir-mirror trace")),
    "yq": ProgramOptions(wide="is", long_wide=long_of("inplace in-place split-exp split-exp-file")),
    "xmllint": ProgramOptions(wide="o", long_wide=long_of("output"), dashes_wide=words_of("-output")),
    "xsltproc": ProgramOptions(wide="o", long_wide=long_of("output writesubtree"), dashes_wide=words_of("-output")),
    **dict.fromkeys(("ctags", "etags"), ProgramOptions(wide="fo", long_wide=long_of("options output libexec-dir"))),
    "man": ProgramOptions("PH", "CM", "sLmre", long_of("pager html"), long_of("config-file manpath")),
    "zip": ProgramOptions(
        long_runs=long_of("unzip-command"),
        dashes_wide=words_of("-lf -O"),
        long_wide=long_of("logfile-path output-file temp-path"),
        wide="b",
    ),
    "install": ProgramOptions(long_runs=long_of("strip-program"), valued="gmotS"),
    **dict.fromkeys(("gcc", "g++", "cc", "c++", "clang", "clang++"), _CC),
    "make": ProgramOptions("E", "fI", "jlWo", long_of("eval"), long_of("file makefile include-dir")),
    "wget": ProgramOptions(
        "",
        "OPoai",
        "",
        long_of("use-askpass"),
        long_of(
            "config output-document output-file append-output directory-prefix input-file save-cookies hsts-file"
            " warc-file warc-tempdir rejected-log input-metalink"
        ),
        unread="e",
        long_unread=long_of("execute"),
    ),
    "curl": ProgramOptions(
        "",
        "KocDOJ",
        "HdXuAebFTxmrCyYztUEQPw",
        frozenset(),
        long_of(
            "config output output-dir remote-name remote-name-all remote-header-name create-dirs cookie-jar dump-header"
            " engine trace trace-ascii trace-config stderr libcurl hsts alt-svc etag-save ssl-sessions"
        ),
        known=words_of("cookie ssl"),  # these are options of their own, not --cookie-jar and --ssl-sessions
    ),
    **dict.fromkeys(("http", "https", "xh", "xhs"), _HTTPIE),
    **dict.fromkeys(("apt", "apt-get", "aptitude"), _APT),
    "dpkg": ProgramOptions(long_runs=long_of("pre-invoke post-invoke status-logger")),
    **dict.fromkeys(("npm", "pnpm", "yarn"), _NPM),
    "brew": ProgramOptions(),
    "bun": _NPM._replace(unread="epr", long_unread=long_of("eval print preload")),
    **dict.fromkeys(
        ("pip", "pip3"),
        ProgramOptions(
            wide="tdwb",
            valued="rcefi",
            long_runs=long_of("python editor"),
            long_wide=long_of("log report target prefix root dest wheel-dir src cache-dir"),
            known=words_of("pre"),
        ),
    ),
    **dict.fromkeys(
        ("docker", "podman", "nerdctl"),
        ProgramOptions(
            wide="Hvo",
            long_wide=long_of(
                "entrypoint host config volume mount privileged device pid cap-add output cidfile iidfile metadata-file"
            ),
        ),
    ),
    **dict.fromkeys(
        ("docker-compose", "podman-compose"),
        ProgramOptions(wide="fHv", long_wide=long_of("entrypoint file host project-directory env-file volume")),
    ),
    **dict.fromkeys(
        ("kubectl", "oc", "k3s", "microk8s"),
        ProgramOptions(
            long_runs=long_of("exec-command"),
            long_wide=long_of("kubeconfig profile-output cache-dir"),
            known=words_of("profile cache"),
        ),
    ),
    "helm": ProgramOptions(
        long_runs=long_of("post-renderer"),
        long_wide=long_of("kubeconfig output-dir registry-config repository-config repository-cache"),
        known=words_of("output repo"),
    ),
    **dict.fromkeys(("terraform", "tofu", "terragrunt"), _TERRAFORM),
    **dict.fromkeys(("vi", "vim", "nvim", "ex", "view", "vimdiff", "gvim", "rvim"), _EDITOR),
    "nano": ProgramOptions("s", "", "orTrCQY", long_of("speller"), long_of("rcfile backupdir")),
    "emacs": ProgramOptions(
        unread="fl",
        plus=True,
        long_unread=long_of("eval execute funcall load script"),
        dashes_unread=words_of("-eval -execute -funcall -load -script"),
    ),
    **dict.fromkeys(("less", "more", "most"), _LESS),
    **dict.fromkeys(("bat", "delta"), ProgramOptions(long_runs=long_of("pager"), long_wide=long_of("config-file"))),
    **dict.fromkeys(
        ("fzf", "sk"),
        ProgramOptions(
            "c",
            "",
            "dnqfst",
            long_of("preview cmd"),
            long_of("history"),
            long_unread=long_of("bind with-shell"),
        ),
    ),
    # Searching.
    "rg": ProgramOptions(long_runs=long_of("pre hostname-bin")),
    **dict.fromkeys(("ag", "ack"), ProgramOptions(long_runs=long_of("pager"), long_wide=long_of("ackrc output"))),
    **dict.fromkeys(
        ("ugrep", "ug"),
        ProgramOptions(long_runs=long_of("pager view"), long_unread=long_of("filter"), wide="", valued="e"),
    ),
    # Languages.
    **dict.fromkeys(("python", "pypy"), _PYTHON),
    "rename": ProgramOptions(),
    "perl": ProgramOptions(code="eEMm", valued="I", language="perl", leading=True),
    "ruby": ProgramOptions(code="er", valued="IC", language="ruby", leading=True),
    "rake": ProgramOptions(
        unread="eEpr", wide="fIC", long_unread=long_of("execute execute-print execute-continue require")
    ),
    **dict.fromkeys(("node", "nodejs"), _NODE),
    "deno": _NODE._replace(leading=False),
    "php": ProgramOptions(code="rBRE", wide="cd", language="php", leading=True),
    **dict.fromkeys(("lua", "luajit"), ProgramOptions(code="el", language="lua", leading=True)),
    "dc": ProgramOptions(unread="e", long_unread=long_of("expression")),
    "psql": ProgramOptions(
        code="c",
        wide="ofL",
        valued="hpUdvPRF",
        long_code=long_of("command"),
        long_wide=long_of("output file log-file"),
        language="sql",
    ),
    **dict.fromkeys(
        ("pg_dump", "pg_dumpall", "pg_restore"),
        ProgramOptions(wide="f", valued="hpUdntTFjZE", long_wide=long_of("file")),
    ),
    "mysqldump": _DUMP,
    "mongodump": ProgramOptions(wide="o", long_wide=long_of("out archive config")),
    "redis-cli": ProgramOptions(long_wide=long_of("rdb functions-rdb")),
    **dict.fromkeys(("mysql", "mariadb"), _MYSQL),
    **dict.fromkeys(
        ("R", "Rscript", "julia", "ghci", "ghc", "groovy", "scala", "elixir", "raku", "ocaml"), _EVAL_SHORT
    ),
    **dict.fromkeys(("racket", "clojure", "clj", "gnuplot", "osascript", "stap", "iex", "jshell", "irb"), _EVAL_SHORT),
    "mix": ProgramOptions(unread="er", long_unread=long_of("eval require")),
    "guile": ProgramOptions(unread="cle", leading=True),
    "sbcl": ProgramOptions(long_unread=long_of("eval load script"), leading=True),
    "octave": ProgramOptions(long_unread=long_of("eval")),
    "swipl": ProgramOptions(unread="gtf"),
    "erl": ProgramOptions(dashes_unread=words_of("-eval -run -s")),
    "rpm": ProgramOptions(unread="ED", long_unread=long_of("eval define pipe rcfile load macros")),
    "m4": ProgramOptions(unread="D", long_unread=long_of("define")),
    "lftp": ProgramOptions(unread="cef"),
    "mutt": ProgramOptions(unread="eF"),
    # Building.
    **BUILDERS,
    "go": ProgramOptions(
        dashes_run=words_of("-exec -toolexec -vettool"),
        long_runs=long_of("exec toolexec vettool"),
        dashes_wide=words_of("-C -modfile -overlay -ldflags -gccgoflags -compiler").union(
            f"-{name}" for name in _GO_WRITES.split()
        ),
        long_wide=long_of(f"modfile overlay ldflags gccgoflags compiler {_GO_WRITES}"),
    ),
    "cargo": ProgramOptions(
        "",
        "CZ",
        "pFj",
        long_unread=long_of("config"),
        long_wide=long_of("manifest-path target-dir artifact-dir out-dir root lockfile-path"),
    ),
    "rustc": ProgramOptions(wide="Z", valued="oCLlAWDF", long_wide=long_of("out-dir")),
    "pytest": ProgramOptions(
        wide="op",
        valued="kmrnWc",
        long_wide=long_of(
            "junitxml junit-xml log-file basetemp html report-log cov-report debug pastebin override-ini pdbcls"
        ),
        known=words_of("cov pdb"),  # these are options of their own, not --cov-report and --pdbcls
    ),
    "coverage": ProgramOptions(wide="od", long_wide=long_of("data-file directory rcfile")),
    "ruff": ProgramOptions(wide="o", long_wide=long_of("output-file config cache-dir")),
    "mypy": ProgramOptions(
        long_runs=long_of("python-executable"),
        long_wide=long_of(
            "config-file cache-dir shadow-file junit-xml any-exprs-report cobertura-xml-report html-report"
            " linecount-report linecoverage-report lineprecision-report memory-xml-report txt-report xml-report"
            " xslt-html-report xslt-txt-report install-types"
        ),
    ),
    "pylint": ProgramOptions(
        long_unread=long_of("init-hook"), long_wide=long_of("output rcfile load-plugins"), known=words_of("init")
    ),
    "flake8": ProgramOptions(long_wide=long_of("output-file config append-config")),
    "bandit": ProgramOptions(wide="oc", long_wide=long_of("output configfile"), valued="fxbtspn"),
    **dict.fromkeys(("jest", "vitest"), ProgramOptions(wide="c", long_wide=words_of("outputFile config globalSetup"))),
    "eslint": _ESLINT,
    "prettier": ProgramOptions(long_wide=long_of("config plugin cache-location"), known=words_of("cache")),
    "tsc": ProgramOptions(wide="p", dashes_wide=frozenset(f"-{name}" for name in _TSC), long_wide=_TSC),
    "cmake": ProgramOptions(
        unread="P", wide="C", long_wide=words_of("graphviz trace-redirect profiling-output debugger-dap-log")
    ),
    "ctest": ProgramOptions(
        unread="S",
        wide="O",
        long_runs=long_of("test-command"),
        long_wide=long_of("script output-log output-junit test-dir"),
        known=words_of("output"),
    ),
    "ninja": ProgramOptions(wide="fC"),
    "bazel": ProgramOptions(long_runs=long_of("run_under"), long_wide=long_of("bazelrc output_base script_path")),
    "gradle": ProgramOptions(wide="Ibpcg", long_wide=long_of("init-script build-file project-dir settings-file")),
    "mvn": ProgramOptions(
        wide="fs",
        valued="DP",
        dashes_run=words_of("-Dexec.executable -Dexec.args"),
        long_wide=long_of("file settings toolchains"),
    ),
    "ant": ProgramOptions(wide="f", dashes_wide=words_of("-buildfile -file -lib")),
    "latexmk": ProgramOptions(unread="er", dashes_unread=words_of("-pdflatex -latex -usepretex -pretex")),
    **dict.fromkeys(("tex", "latex", "pdftex", "pdflatex", "xetex", "xelatex", "lualatex", "luatex"), _TEX),
    "pandoc": ProgramOptions(
        "F",
        "d",
        "oftrVMHBATcD",
        long_of("filter pdf-engine"),
        long_of("defaults data-dir"),
        unread="L",
        long_unread=long_of("lua-filter"),
    ),
    # Versions, mail, the net, the rest.
    "hg": ProgramOptions(
        "ce",
        "Ro",
        "",
        long_of("command tool ssh remotecmd program"),
        long_of("repository cwd output pid-file accesslog errorlog"),
        long_unread=long_of("config"),
        known=words_of("re rev remote"),
    ),
    "svn": ProgramOptions(
        long_runs=long_of("diff-cmd diff3-cmd merge-cmd editor-cmd"),
        long_unread=long_of("config-option"),
        long_wide=long_of("config-dir"),
    ),
    "cvs": ProgramOptions("e", "d"),
    "gpg": ProgramOptions(
        long_runs=long_of("photo-viewer agent-program dirmngr-program"),
        wide="o",
        long_wide=long_of("homedir options output log-file logger-file status-file attribute-file"),
    ),
    "openssl": ProgramOptions(
        dashes_wide=words_of(
            "-engine -config -provider-path -out -rand -writerand -keyout -sess_out -keylogfile -msgfile -certout"
            " -outdir -cacertsout -extracertsout -chainout -respout -reqout -rspout -CAcreateserial -CAserial"
        )
    ),
    "ssh-keygen": ProgramOptions(wide="fDwTGMKJO", valued="tbCNPEmnVzIsrS"),
    "nmap": ProgramOptions(wide="o", long_unread=long_of("script"), long_wide=long_of("datadir stylesheet resume")),
    "ansible": ProgramOptions("a", "iMe", "", long_of("args"), long_of("inventory module-path extra-vars")),
    "tcpdump": ProgramOptions("z", "w", "BcCFGijmMQrsTVWyZ"),
    "tshark": ProgramOptions(wide="wKX", long_wide=long_of("export-objects export-tls-session-keys")),
    # The machine: what these set is no file, but a wildcard that sounds like reading does not cover it either.
    "date": ProgramOptions(wide="s", valued="dfrI", long_wide=long_of("set")),
    "hostname": ProgramOptions(wide="Fb", long_wide=long_of("file boot")),
    "sysctl": ProgramOptions(wide="wpf", valued="r", long_wide=long_of("write load system"), known=words_of("values")),
    **dict.fromkeys(("timedatectl", "hostnamectl", "localectl", "route"), ProgramOptions()),
    "dmesg": ProgramOptions(
        wide="CcDEn", valued="fls", long_wide=long_of("clear read-clear console-off console-on console-level")
    ),
    "arp": ProgramOptions(wide="sdf", valued="iHA", long_wide=long_of("set delete file")),
    "ss": ProgramOptions(wide="KD", valued="FfAN", long_wide=long_of("kill diag")),
    "lastlog": ProgramOptions(wide="CS", valued="btuR", long_wide=long_of("clear set root")),
    "lsof": ProgramOptions(wide="D", valued="acdFgiknopsSuTx"),
    "fuser": ProgramOptions(wide="k", valued="nN", long_wide=long_of("kill")),
    "journalctl": ProgramOptions(
        long_wide=long_of("cursor-file rotate vacuum-size vacuum-time vacuum-files flush update-catalog setup-keys"),
        known=words_of("cursor"),
    ),
    "aria2c": ProgramOptions(
        long_runs=long_of(
            "on-download-complete on-download-start on-download-error on-download-pause on-download-stop"
            " on-bt-download-complete"
        ),
        wide="dol",
        long_wide=long_of("conf-path input-file dir out log save-session save-cookies dht-file-path"),
    ),
    **dict.fromkeys(("yt-dlp", "youtube-dl"), _VIDEO),
    **dict.fromkeys(("gs", "convert", "magick", "identify", "mogrify", "sox"), ProgramOptions()),
    "crontab": ProgramOptions(),
    "sqlite3": ProgramOptions(dashes_unread=words_of("-init --init"), language="sqlite"),
    "tclsh": ProgramOptions(leading=True),
    "ed": ProgramOptions(),
    "gdb": ProgramOptions(
        unread="x",
        long_unread=long_of("eval-command init-eval-command command init-command"),
        dashes_unread=words_of("-ex -iex -ix -eval-command -command -init-command -init-eval-command"),
        leading=True,
    ),
    "bpftrace": _EVAL_SHORT._replace(runs="c", wide="o"),
    "patch": ProgramOptions(wide="or", valued="bBdDFgipVYz", long_wide=long_of("output reject-file")),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), ProgramOptions(valued="Fv")),
    **dict.fromkeys(("sed", "gsed"), ProgramOptions(valued="el")),
    "git": ProgramOptions(),
    "gh": ProgramOptions(wide="OD", long_wide=long_of("output dir")),
    "glab": ProgramOptions(),
}
