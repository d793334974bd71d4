# The lock of a recipe: one line for each input, then the digest of the result.
#
#   deb NAME VERSION sha256:HEX ARCHIVE POOL-PATH     ARCHIVE: debian | debian-security
#   npm NAME VERSION sha512-BASE64
#   pypi NAME VERSION sha256:HEX FILE-NAME
#   manifest sha256:HEX
#
# Sourced by ../build.
# shellcheck shell=bash disable=SC2154 # variables of ../build and of the recipe

lock_header() {
    printf '# Made by: bundles/build %s OUTDIR --update-lock. Not edited by hand.\n' "$recipe"
    printf '# deb NAME VERSION SHA-256 ARCHIVE PATH; npm NAME VERSION INTEGRITY;\n'
    printf '# pypi NAME VERSION SHA-256 FILE; manifest DIGEST (of the built image).\n'
}

# lock_lines KIND FILE: the fields after KIND, one input per line.
lock_lines() { sed -n "s/^$1 //p" -- "$2"; }
lock_manifest() { lock_lines manifest "$1"; }

# The hash of one input: lock_hash KIND NAME FILE.
lock_hash() { awk -v k="$1" -v n="$2" '$1 == k && $2 == n { print $4 }' "$3"; }

# Refuses a lock with a line that this script would not write: its fields
# become file names and arguments.
check_lock() {
    local name='[a-z0-9][a-z0-9.+_-]*' version='[0-9][A-Za-z0-9.+:~-]*' bad
    bad=$(grep -nvxE \
        -e '#.*|' \
        -e "deb $name $version sha256:[0-9a-f]{64} debian(-security)? pool/[A-Za-z0-9.+_~/-]+\.deb" \
        -e "npm $name $version sha512-[A-Za-z0-9+/]{86}==" \
        -e "pypi $name $version sha256:[0-9a-f]{64} [A-Za-z0-9._-]+\.whl" \
        -e 'manifest sha256:[0-9a-f]{64}' -- "$1" || true)
    [ -z "$bad" ] || die "lock of $recipe, line not understood: ${bad%%$'\n'*}"

    local entry
    for entry in "${npm_inputs[@]}"; do check_recipe_input npm "$entry" "$1"; done
    for entry in "${pypi_inputs[@]}"; do check_recipe_input pypi "${entry%%:*}" "$1"; done
}

check_recipe_input() {
    grep -qF -- "$1 ${2%@*} ${2##*@} " "$3" ||
        die "recipe $recipe asks for $1 package $2, its lock has another version; --update-lock makes a new pin"
}
