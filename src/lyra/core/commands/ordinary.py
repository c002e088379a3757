"""Programs that are known to take no argument for a command: names of files, patterns, packages, subcommands.

Of a program that is neither here nor in the tables of those that run others (`programs`, `options`), each argument may
begin a command, so a deny matches from every argument on: there is no end to the programs that run others.
"""

from __future__ import annotations

from typing import Final

from lyra.core.commands.option_reach import words_of

ORDINARY: Final = words_of(
    # Files and folders.
    "ls dir vdir cat tac head tail nl rev cp mv rm ln mkdir rmdir touch chmod chown chgrp stat file readlink realpath"
    " basename dirname pwd mktemp mkfifo mknod truncate shred dd tee tree du df sync lsof fuser mount umount lsblk"
    " blkid findmnt install shuf pathchk setfacl getfacl chattr lsattr getfattr setfattr namei exa eza lsd rmtrash"
    " trash"
    # Text.
    " echo printf cut tr uniq comm paste join fold fmt expand unexpand column seq yes wc grep egrep fgrep cksum"
    " md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum sum base64 base32 basenc base od xxd hexdump hd"
    " strings diff cmp colordiff iconv dos2unix unix2dos pr ptx tsort numfmt look spell aspell hunspell"
    " csvcut csvlook csvstat jq yq xq tomlq xmllint jsonlint yamllint cloc tokei scc wdiff vimdiff"
    # Archives.
    " gzip gunzip zcat bzip2 bunzip2 bzcat xz unxz xzcat zstd unzstd zstdcat lz4 brotli unzip 7z 7za 7zr unrar rar ar"
    # The machine and its processes.
    " true false test [ : sleep date cal id whoami who w users groups hostname hostnamectl uname uptime free vmstat"
    " iostat mpstat nproc lscpu lspci lsusb lsmod dmesg ps pgrep pkill kill killall pidof pstree top htop btop jobs fg"
    " bg wait journalctl systemctl service loginctl timedatectl localectl last lastlog tty stty locale getconf sysctl"
    # The shell.
    " cd pushd popd dirs export unset set shopt read exit return break continue shift local declare typeset readonly"
    " type which whereis whatis apropos info help hash umask ulimit alias unalias history times logout suspend disown"
    " let getopts printenv clear reset tput"
    # The net.
    " ping ping6 dig nslookup host whois traceroute tracepath mtr ifconfig netstat ss arp route getent nmcli iw"
    # Building, testing, checking.
    " pytest py.test unittest nosetests coverage ruff black isort flake8 pyflakes pycodestyle pyright"
    " basedpyright ty bandit autopep8 yapf pre-commit djlint sphinx-build mkdocs twine build flit maturin pip-compile"
    " pip-sync tsc eslint prettier jest vitest mocha ava karma cypress playwright webpack rollup vite esbuild swc"
    " babel stylelint biome oxlint next nuxt astro ng vue svelte-check tailwindcss postcss sass storybook rustc"
    " rustfmt clippy-driver gofmt goimports golangci-lint staticcheck golint"
    " clang-format clang-tidy cppcheck nm objdump objcopy readelf size strip addr2line"
    " c++filt gcov gprof autoconf automake aclocal pkg-config meson buf flatc thrift antlr"
    " nuget phpunit phpstan rspec rubocop erlc elixirc ghc-pkg hlint ormolu shellcheck"
    " shfmt hadolint actionlint markdownlint vale codespell typos semgrep trivy snyk gitleaks"
    # Packages and services.
    " apk dnf yum zypper pacman brew port opam choco winget scoop dpkg-query apt-cache apt-mark"
    " apt-file snapcraft terraform tofu packer kustomize argocd istioctl eksctl aws az doctl s3cmd mc"
    " pg_dump pg_restore pg_isready createdb dropdb mysqldump mysqladmin redis-cli mongodump mongorestore influx"
    " sqlcmd alembic flyway liquibase prisma tea git-lfs svnadmin ssh-keygen ssh-add ssh-keyscan"
    " gpgconf age ollama huggingface-cli hf kaggle nvidia-smi rocm-smi"
)
