# Writes an OCI image layout (image-spec 1.1, image-layout.md) below $work/layout,
# byte for byte the same for the same trees. Sourced by ../build.
# shellcheck shell=bash disable=SC2154 # variables of ../build and of the recipe

layers=()   # JSON descriptors, base first
diff_ids=() # sha256:HEX of the uncompressed tars
history=()  # JSON history entries
manifest_digest=

# add_blob FILE: moves FILE into the layout, prints its digest.
add_blob() {
    local digest
    digest=$(file_hash sha256 "$1")
    mv -- "$1" "$work/layout/blobs/sha256/${digest#sha256:}"
    printf '%s' "$digest"
}

# pack_layer NAME: a gzip tar of everything below $work/NAME. Sorted names, all
# times $SOURCE_DATE_EPOCH, numeric owners, no device nodes or sockets.
pack_layer() {
    local tar="$work/$1.tar"
    (cd "$work/$1" && find . -mindepth 1 \( -type d -o -type f -o -type l \) -printf '%P\0' | sort -z |
        tar --create --no-recursion --null --verbatim-files-from --files-from=- \
            --mtime="@$SOURCE_DATE_EPOCH" --numeric-owner --format=posix \
            --pax-option='exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime') >"$tar"
    file_hash sha256 "$tar" >"$work/$1.diff_id"
    gzip -n -6 "$tar"
}

# add_layer NAME TEXT: adds the layer that pack_layer made, above those before it.
add_layer() {
    local digest size
    diff_ids+=("$(cat "$work/$1.diff_id")")
    size=$(stat -c %s "$work/$1.tar.gz")
    digest=$(add_blob "$work/$1.tar.gz")
    layers+=("$(jq -cn --arg digest "$digest" --argjson size "$size" \
        '{mediaType: "application/vnd.oci.image.layer.v1.tar+gzip", digest: $digest, size: $size}')")
    history+=("$(jq -cn --arg created "$(created)" --arg text "$2" '{created: $created, created_by: $text}')")
}

created() { date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ; }

# Writes config, manifest, index.json and oci-layout; sets $manifest_digest.
write_image() {
    local layout="$work/layout" digest size
    jq -cjn --arg created "$(created)" --argjson config "$image_config" \
        --argjson diff_ids "$(printf '%s\n' "${diff_ids[@]}" | jq -R . | jq -cs .)" \
        --argjson history "$(printf '%s\n' "${history[@]}" | jq -cs .)" \
        '{created: $created, architecture: "amd64", os: "linux", config: $config,
          rootfs: {type: "layers", diff_ids: $diff_ids}, history: $history}' >"$work/config.json"
    size=$(stat -c %s "$work/config.json")
    digest=$(add_blob "$work/config.json")
    jq -cjn --arg digest "$digest" --argjson size "$size" \
        --argjson layers "$(printf '%s\n' "${layers[@]}" | jq -cs .)" \
        '{schemaVersion: 2, mediaType: "application/vnd.oci.image.manifest.v1+json",
          config: {mediaType: "application/vnd.oci.image.config.v1+json", digest: $digest, size: $size},
          layers: $layers}' >"$work/manifest.json"
    size=$(stat -c %s "$work/manifest.json")
    manifest_digest=$(add_blob "$work/manifest.json")
    jq -cjn --arg digest "$manifest_digest" --argjson size "$size" --arg name "$image_name:$image_tag" \
        '{schemaVersion: 2, mediaType: "application/vnd.oci.image.index.v1+json",
          manifests: [{mediaType: "application/vnd.oci.image.manifest.v1+json", digest: $digest, size: $size,
            annotations: {"org.opencontainers.image.ref.name": $name},
            platform: {architecture: "amd64", os: "linux"}}]}' >"$layout/index.json"
    printf '{"imageLayoutVersion":"1.0.0"}' >"$layout/oci-layout"
}

# layout_holds DIR DIGEST: succeeds if the layout's one image is DIGEST and all of
# its blobs are there and whole.
layout_holds() {
    local dir=$1 digest
    [ -f "$dir/index.json" ] && [ -f "$dir/oci-layout" ] || return 1
    [ "$(jq -r '.manifests | map(.digest) | join(" ")' "$dir/index.json")" = "$2" ] || return 1
    for digest in "$2" $(jq -r '.config.digest, .layers[].digest' "$dir/blobs/sha256/${2#sha256:}"); do
        [ -f "$dir/blobs/sha256/${digest#sha256:}" ] || return 1
        [ "$(file_hash sha256 "$dir/blobs/sha256/${digest#sha256:}")" = "$digest" ] || return 1
    done
}
