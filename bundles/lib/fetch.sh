# Resolves, downloads and verifies the inputs of a recipe, each by the ordinary
# client of its registry as this host has it configured. Sourced by ../build.
# shellcheck shell=bash disable=SC2154 # variables of ../build and of the recipe

apt_helper=/usr/lib/apt/apt-helper
debian_keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# --- hashes and the cache -------------------------------------------------
# A cached file's name is its hash, and it is hashed again at each use.

# cache_path HASH: where the file with this hash (sha256:HEX or sha512-BASE64) is kept.
cache_path() {
    case $1 in
        sha256:*) printf '%s/sha256/%s' "$cache" "${1#sha256:}" ;;
        sha512-*) printf '%s/sha512/%s' "$cache" \
            "$(printf '%s' "${1#sha512-}" | base64 -d | od -An -v -tx1 | tr -d ' \n')" ;;
        *) die "hash of an unknown kind: $1" ;;
    esac
}

# file_hash KIND FILE: the file's hash in the lock's notation.
file_hash() {
    local hex
    case $1 in
        sha256) hex=$(sha256sum <"$2") && printf 'sha256:%s' "${hex%% *}" ;;
        sha512)
            hex=$(sha512sum <"$2") && hex=${hex%% *}
            # shellcheck disable=SC2059 # the format is the hex digits as escapes
            printf 'sha512-%s' "$(printf "$(printf '%s' "$hex" | sed 's/../\\x&/g')" | base64 -w0)"
            ;;
    esac
}

# cached HASH: succeeds if the cache holds that very file; drops a damaged one.
cached() {
    local path
    path=$(cache_path "$1")
    [ -f "$path" ] || return 1
    [ "$(file_hash "${1:0:6}" "$path")" = "$1" ] && return 0
    say "cached file ${path#"$cache/"} is damaged, fetching it again"
    rm -f -- "$path"
    return 1
}

# store FILE HASH WHAT: moves FILE into the cache if it has that hash.
store() {
    local path got
    got=$(file_hash "${2:0:6}" "$1")
    [ "$got" = "$2" ] || die "$3: locked hash $2, downloaded file has $got"
    path=$(cache_path "$2")
    cp -- "$1" "$path.$$"
    mv -- "$path.$$" "$path"
    rm -f -- "$1"
}

# --- Debian ---------------------------------------------------------------

# archive_uri ARCHIVE: the mirror of Debian or its security archive that this
# host's apt is configured with. One mirror holds every suite.
archive_uri() {
    local label=Debian uri
    [ "$1" = debian ] || label=Debian-Security
    # shellcheck disable=SC2016 # apt's own placeholders
    uri=$(apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' 'Identifier: Packages' |
        sed -n "s/^Debian|$label|//p" | sort -u | head -n 1)
    [ -n "$uri" ] || die "apt on this host knows no source labelled $label: configure one and run apt-get update"
    printf '%s' "${uri%/}"
}

# private_apt: prepares an apt of our own for $debian_suite beside the host's:
# same mirrors and proxies, its own lists and an empty dpkg status. Sets $apt_options.
private_apt() {
    local root="$work/apt"
    [ ! -d "$root" ] || return 0
    mkdir -p "$root/lists/partial" "$root/cache/archives/partial"
    : >"$root/status"
    printf 'deb [signed-by=%s] %s %s main\n' "$debian_keyring" \
        "$(archive_uri debian)" "$debian_suite" >"$root/sources.list"
    printf 'deb [signed-by=%s] %s %s-security main\n' "$debian_keyring" \
        "$(archive_uri debian-security)" "$debian_suite" >>"$root/sources.list"
    apt_options=(
        -o "Dir::State=$root" -o "Dir::State::status=$root/status" -o "Dir::State::lists=$root/lists"
        -o "Dir::Cache=$root/cache" -o "Dir::Etc::sourcelist=$root/sources.list"
        -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferences=/dev/null
        -o Dir::Etc::preferencesparts=/dev/null -o APT::Architecture=amd64 -o APT::Architectures=amd64
        -o APT::Install-Recommends=false -o APT::Sandbox::User=root -o Acquire::Languages=none
        # apt holds itself essential; an image needs no apt
        -o 'pkgCacheGen::ForceEssential=,'
    )
    apt-get "${apt_options[@]}" -qq --error-on=any update >&2 || die "apt could not read the lists of $debian_suite"
}

# Lock lines of every package that $debian_packages needs, at the mirror's newest version.
resolve_debs() {
    private_apt
    local wanted=()
    mapfile -t wanted < <(resolve_names)
    [ "${#wanted[@]}" -gt 0 ] || die "apt finds no set of packages for: ${debian_packages[*]}"
    apt-cache "${apt_options[@]}" show "${wanted[@]}" | awk '
        /^Package:/ { name = $2 } /^Version:/ { version = $2 }
        /^Filename:/ { file = $2 } /^SHA256:/ { hash = $2 }
        /^$/ && name != "" {
            if (!seen[name]++)
                print "deb", name, version, "sha256:" hash, \
                    (file ~ /^pool\/updates\// ? "debian-security" : "debian"), file
            name = ""
        }' | sort
}

# name=version of each package of a simulated installation into nothing, or,
# where dependencies do not count, of the named packages alone.
resolve_names() {
    if [ -n "$debian_dependencies" ]; then
        apt-get "${apt_options[@]}" -s install "${debian_packages[@]}" |
            sed -nE 's/^Inst ([^ ]+) \(([^ ]+) .*/\1=\2/p'
    else
        local name
        for name in "${debian_packages[@]}"; do
            printf '%s=%s\n' "$name" "$(available_version "$name")"
        done
    fi
}

available_version() {
    apt-cache "${apt_options[@]}" show --no-all-versions "$1" 2>/dev/null |
        sed -n 's/^Version: //p' | head -n 1
}

# Downloads the .debs of lock $1 that are not cached, in one run of apt.
fetch_debs() {
    local name version hash archive path list=() arguments=()
    local -A uri=()
    mkdir -p "$work/debs"
    while read -r name version hash archive path; do
        ! cached "$hash" || continue
        [ -n "${uri[$archive]:-}" ] || uri[$archive]=$(archive_uri "$archive")
        list+=("$name $version $hash")
        arguments+=("${uri[$archive]}/$path" "$work/debs/$name" "SHA256:${hash#sha256:}")
    done < <(lock_lines deb "$1")
    [ "${#list[@]}" -gt 0 ] || return 0

    say "fetching ${#list[@]} Debian packages"
    "$apt_helper" -q -o APT::Sandbox::User=root -o Acquire::Retries=3 download-file "${arguments[@]}" \
        >"$work/apt-helper.log" 2>&1 || true
    local entry gone=()
    for entry in "${list[@]}"; do
        read -r name version hash <<<"$entry"
        if [ -f "$work/debs/$name" ]; then
            store "$work/debs/$name" "$hash" "Debian package $name $version"
        else
            gone+=("$name $version")
        fi
    done
    [ "${#gone[@]}" -eq 0 ] || report_gone "${gone[@]}"
}

# Tells, for each locked package that could not be had, what the mirror has instead.
report_gone() {
    local entry name version now text=
    private_apt
    for entry in "$@"; do
        read -r name version <<<"$entry"
        now=$(available_version "$name")
        text+=$'\n'"  $name: locked $version, available ${now:-none}"
        [ "$now" != "$version" ] || text+=" (the same: the network or the mirror's file is at fault)"
    done
    grep -E '^(E|Err)' "$work/apt-helper.log" | head -n 5 >&2 || true
    die "locked Debian packages could not be fetched:$text"$'\n'"Where the mirror has dropped a version, --update-lock makes a new pin."
}

# debs_of_lock LOCK: cached path of each .deb.
debs_of_lock() {
    local hash
    while read -r _ _ hash _; do
        cache_path "$hash"
        printf '\n'
    done < <(lock_lines deb "$1")
}

# --- npm ------------------------------------------------------------------

# npm_pack NAME VERSION: downloads the package's tarball and prints its path. The
# client checks it against the registry's integrity, the caller against the lock.
npm_pack() {
    local dir="$work/npm"
    mkdir -p "$dir"
    (cd "$dir" && npm pack --silent --ignore-scripts --cache "$work/npm-cache" "$1@$2" >/dev/null) || {
        local now
        now=$(cd "$dir" && npm view --cache "$work/npm-cache" "$1" version 2>/dev/null) || now=unknown
        die "npm package $1: locked $2 could not be fetched, newest available $now;" \
            "if it is gone, change the recipe, and --update-lock makes a new pin"
    }
    printf '%s/%s-%s.tgz' "$dir" "$1" "$2"
}

# --- PyPI -----------------------------------------------------------------

pip_command() {
    if command -v pip >/dev/null 2>&1; then pip "$@"; else pip3 "$@"; fi
}

# pip_fetch NAME VERSION PLATFORM [HASH]: downloads the wheel, prints its path.
pip_fetch() {
    local dir="$work/pypi" options=()
    mkdir -p "$dir"
    printf '%s==%s%s\n' "$1" "$2" "${4:+ --hash=$4}" >"$dir/requirements.txt"
    [ -z "${4:-}" ] || options+=(--require-hashes)
    pip_command --disable-pip-version-check download -q --no-deps --no-cache-dir --only-binary :all: \
        --platform "$3" "${options[@]}" -d "$dir" -r "$dir/requirements.txt" >&2 ||
        die "PyPI package $1: locked $2 could not be fetched (pip's reason is above);" \
            "if it is gone, change the recipe, and --update-lock makes a new pin"
    find "$dir" -name "${1//-/_}-$2-*.whl"
}

# --- all of a recipe's inputs ---------------------------------------------

# Prints fresh lock lines for the recipe, and leaves what it downloads in the cache.
resolve_inputs() {
    local entry name version file hash
    resolve_debs
    for entry in "${npm_inputs[@]}"; do
        name=${entry%@*} version=${entry##*@}
        file=$(npm_pack "$name" "$version")
        hash=$(file_hash sha512 "$file")
        store "$file" "$hash" "npm package $entry"
        printf 'npm %s %s %s\n' "$name" "$version" "$hash"
    done
    for entry in "${pypi_inputs[@]}"; do
        name=${entry%%@*} version=${entry##*@} version=${version%%:*}
        file=$(pip_fetch "$name" "$version" "${entry##*:}")
        hash=$(file_hash sha256 "$file")
        store "$file" "$hash" "PyPI package $name"
        printf 'pypi %s %s %s %s\n' "$name" "$version" "$hash" "$(basename -- "$file")"
    done
}

# Brings every input of lock $1 into the cache and verifies it.
fetch_inputs() {
    local name version hash file entry
    fetch_debs "$1"
    while read -r name version hash; do
        ! cached "$hash" || continue
        say "fetching npm package $name $version"
        file=$(npm_pack "$name" "$version")
        store "$file" "$hash" "npm package $name $version"
    done < <(lock_lines npm "$1")
    for entry in "${pypi_inputs[@]}"; do
        name=${entry%%@*} version=${entry##*@} version=${version%%:*}
        hash=$(lock_hash pypi "$name" "$1")
        ! cached "$hash" || continue
        say "fetching PyPI package $name $version"
        file=$(pip_fetch "$name" "$version" "${entry##*:}" "$hash")
        store "$file" "$hash" "PyPI package $name $version"
    done
}

# npm_tarball NAME: the cached tarball of an npm input.
npm_tarball() { cache_path "$(lock_hash npm "$1" "$work/lock")"; }
# pypi_wheel NAME: the cached wheel of a PyPI input.
pypi_wheel() { cache_path "$(lock_hash pypi "$1" "$work/lock")"; }

# install_npm ROOT: npm and npx below /usr/local.
install_npm() {
    local dir="$1/usr/local/lib/node_modules/npm"
    mkdir -p "$dir" "$1/usr/local/bin"
    tar -xzf "$(npm_tarball npm)" -C "$dir" --strip-components=1 --no-same-owner
    ln -s ../lib/node_modules/npm/bin/npm-cli.js "$1/usr/local/bin/npm"
    ln -s ../lib/node_modules/npm/bin/npx-cli.js "$1/usr/local/bin/npx"
    chmod 755 "$dir/bin/npm-cli.js" "$dir/bin/npx-cli.js"
}
