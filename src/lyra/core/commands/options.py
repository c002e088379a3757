"""Which options of which program run something, read other settings or write anywhere: one row a program.

`option_reach` explains the fields, `programs` applies them to a call. A new row needs no code, only a line in the
tests that shows what it stops.
"""

from __future__ import annotations

from typing import Final

from lyra.core.commands.option_reach import ProgramOptions, long_of, words_of

__all__ = ["OPTIONS"]

_TAR: Final = ProgramOptions(
    "IF",
    "PT",
    "fbCgHKLNVXT",
    long_of("checkpoint-action to-command use-compress-program info-script new-volume-script rsh-command rmt-command"),
    long_of("files-from absolute-names index-file"),
    known=words_of("checkpoint"),
    bundle=True,
)
_CC: Final = ProgramOptions(
    commas=True, valued="o", dashes_run=words_of("-wrapper"), dashes_wide=words_of("-specs -fplugin"), wide="B"
)
_EDITOR: Final = ProgramOptions(plus=True, unread="cSsuW", long_unread=long_of("cmd"), wide="w")
_NODE: Final = ProgramOptions(
    code="epr",
    long_code=long_of("eval print require import loader experimental-loader"),
    language="javascript",
    leading=True,
)
_PYTHON: Final = ProgramOptions(code="c", valued="WX", language="python", leading=True)
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
    dashes_wide=words_of("-output-directory -fmt"),
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
    long_of("prefix userconfig globalconfig node-options init-module dir cwd"),
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
        "e", "M", "fT", long_of("rsh rsync-path"), long_of("daemon config write-batch log-file server files-from")
    ),
    **dict.fromkeys(("scp", "sftp"), _COPY),
    "sort": ProgramOptions("", "o", "kStT", long_of("compress-program"), long_of("output files0-from")),
    "split": ProgramOptions(long_runs=long_of("filter")),
    "man": ProgramOptions("PH", "CM", "sLmre", long_of("pager html"), long_of("config-file manpath")),
    "zip": ProgramOptions(long_runs=long_of("unzip-command")),
    "install": ProgramOptions(long_runs=long_of("strip-program"), valued="gmotS"),
    **dict.fromkeys(("gcc", "g++", "cc", "c++", "clang", "clang++"), _CC),
    "make": ProgramOptions("E", "fI", "jlWo", long_of("eval"), long_of("file makefile include-dir")),
    "wget": ProgramOptions(
        "",
        "OPoai",
        "",
        long_of("use-askpass"),
        long_of("config output-document directory-prefix"),
        unread="e",
        long_unread=long_of("execute"),
    ),
    "curl": ProgramOptions(
        "", "KocD", "HdXuAebFTxmrwC", frozenset(), long_of("config output cookie-jar dump-header engine trace")
    ),
    **dict.fromkeys(("apt", "apt-get", "aptitude"), _APT),
    "dpkg": ProgramOptions(long_runs=long_of("pre-invoke post-invoke status-logger")),
    **dict.fromkeys(("npm", "pnpm", "yarn"), _NPM),
    "bun": _NPM._replace(unread="epr", long_unread=long_of("eval print preload")),
    **dict.fromkeys(("pip", "pip3"), ProgramOptions(long_runs=long_of("python editor"), long_wide=long_of("log"))),
    **dict.fromkeys(
        ("docker", "podman", "nerdctl"),
        ProgramOptions(
            wide="Hv", long_wide=long_of("entrypoint host config volume mount privileged device pid cap-add")
        ),
    ),
    **dict.fromkeys(("vi", "vim", "nvim", "ex", "view", "vimdiff", "gvim", "rvim"), _EDITOR),
    "nano": ProgramOptions("s", "", "orTrCQY", long_of("speller"), long_of("rcfile backupdir")),
    "emacs": ProgramOptions(
        unread="fl",
        plus=True,
        long_unread=long_of("eval execute funcall load script"),
        dashes_unread=words_of("-eval -execute -funcall -load -script"),
    ),
    **dict.fromkeys(("less", "more", "most"), _LESS),
    # Searching.
    "rg": ProgramOptions(long_runs=long_of("pre hostname-bin")),
    **dict.fromkeys(("ag", "ack"), ProgramOptions(long_runs=long_of("pager"), long_wide=long_of("ackrc output"))),
    **dict.fromkeys(
        ("ugrep", "ug"),
        ProgramOptions(long_runs=long_of("pager view"), long_unread=long_of("filter"), wide="", valued="e"),
    ),
    # Languages.
    **dict.fromkeys(("python", "pypy"), _PYTHON),
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
        code="c", wide="of", long_code=long_of("command"), long_wide=long_of("output file"), language="sql"
    ),
    **dict.fromkeys(("mysql", "mariadb"), _MYSQL),
    **dict.fromkeys(
        ("R", "Rscript", "julia", "ghci", "ghc", "groovy", "scala", "elixir", "raku", "ocaml"), _EVAL_SHORT
    ),
    **dict.fromkeys(
        ("racket", "clojure", "clj", "gnuplot", "osascript", "bpftrace", "stap", "iex", "jshell"), _EVAL_SHORT
    ),
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
    "go": ProgramOptions(
        dashes_run=words_of("-exec -toolexec -vettool"),
        long_runs=long_of("exec toolexec vettool"),
        dashes_wide=words_of("-C -modfile -overlay -ldflags -gccgoflags -compiler"),
        long_wide=long_of("modfile overlay ldflags gccgoflags compiler"),
    ),
    "cargo": ProgramOptions(
        "",
        "CZ",
        "pFj",
        long_unread=long_of("config"),
        long_wide=long_of("manifest-path target-dir artifact-dir root"),
    ),
    "mypy": ProgramOptions(long_runs=long_of("python-executable"), long_wide=long_of("config-file")),
    "cmake": ProgramOptions(unread="P", wide="C"),
    "ctest": ProgramOptions(unread="S", long_wide=long_of("script")),
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
        "c", "R", "", long_of("command tool"), long_of("repository cwd output"), long_unread=long_of("config")
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
        long_wide=long_of("homedir options output"),
    ),
    "openssl": ProgramOptions(dashes_wide=words_of("-engine -config -provider-path -out -rand -writerand")),
    "ansible": ProgramOptions("a", "iMe", "", long_of("args"), long_of("inventory module-path extra-vars")),
    "tcpdump": ProgramOptions("z", "", "BcCFGijmMQrsTVwWyZ"),
    "aria2c": ProgramOptions(
        long_runs=long_of(
            "on-download-complete on-download-start on-download-error on-download-pause on-download-stop"
            " on-bt-download-complete"
        ),
        long_wide=long_of("conf-path input-file"),
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
    "patch": ProgramOptions(wide="or", valued="bBdDFgipVYz", long_wide=long_of("output reject-file")),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), ProgramOptions(valued="Fv")),
    **dict.fromkeys(("sed", "gsed"), ProgramOptions(valued="el")),
    "git": ProgramOptions(),
    "gh": ProgramOptions(),
}
