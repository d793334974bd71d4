//! What a document from a registry is. One blob must not be a manifest to one reader and an index to
//! another (CVE-2021-41190), so what it says of itself, what the registry says and what it holds must agree.

use super::super::error::unread;
use super::super::resolve::{is_index, is_manifest};
use oci_spec::image::MediaType;
use serde::Deserialize;
use serde::de::IgnoredAny;

#[derive(Deserialize)]
struct Outline {
    #[serde(rename = "schemaVersion")]
    schema: Option<u64>,
    #[serde(rename = "mediaType")]
    media_type: Option<String>,
    manifests: Option<IgnoredAny>,
    layers: Option<IgnoredAny>,
    #[serde(rename = "fsLayers")]
    old_layers: Option<IgnoredAny>,
}

/// The media type of a document that the registry calls `told`.
///
/// # Errors
/// What is wrong, and the next step.
pub(in super::super) fn media_type(document: &[u8], told: &str) -> Result<MediaType, String> {
    let outline: Outline = serde_json::from_slice(document).map_err(|e| {
        format!("it is no manifest and no index ({}); see that the digest is that of an image", unread(&e))
    })?;
    if outline.schema == Some(1) || outline.old_layers.is_some() {
        return Err("it is a manifest of Docker's schema 1, which no digest of its layers holds together; \
                    push the image again with a current tool"
            .to_owned());
    }
    let known = |text: &str| {
        let media_type = MediaType::from(text);
        (is_index(&media_type) || is_manifest(&media_type)).then_some(media_type)
    };
    let (said, told) = (outline.media_type.as_deref(), known(told));
    let own = match said {
        Some(said) => Some(known(said).ok_or_else(|| {
            let said: String = said.chars().filter(|c| !c.is_control()).take(100).collect();
            format!("it is a '{said}', not an image; see that the digest is that of an image")
        })?),
        None => None,
    };
    let index = match (&own, &told) {
        (Some(a), Some(b)) if is_index(a) != is_index(b) => {
            return Err("the registry calls it by another media type than it calls itself".to_owned());
        }
        (Some(a), _) | (None, Some(a)) => is_index(a),
        (None, None) => outline.manifests.is_some(),
    };
    if (index && outline.layers.is_some()) || (!index && outline.manifests.is_some()) {
        return Err("it is a manifest and an index in one; push the image again".to_owned());
    }
    let plain = if index { MediaType::ImageIndex } else { MediaType::ImageManifest };
    Ok(own.or(told).unwrap_or(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
    const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
    const INDEX: &str = "application/vnd.oci.image.index.v1+json";
    const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

    fn judged(body: &str, told: &str) -> Result<String, String> {
        media_type(body.as_bytes(), told).map(|t| t.to_string())
    }

    #[test]
    fn img2_a_document_is_what_it_and_the_registry_say() {
        for (body, told, is) in [
            (r#"{"schemaVersion":2,"layers":[]}"#.to_owned(), MANIFEST, MANIFEST),
            (r#"{"schemaVersion":2,"manifests":[]}"#.to_owned(), INDEX, INDEX),
            (r#"{"manifests":[]}"#.to_owned(), "application/octet-stream", INDEX),
            (r#"{"layers":[]}"#.to_owned(), "", MANIFEST),
            (format!(r#"{{"mediaType":"{DOCKER_LIST}","manifests":[]}}"#), "text/plain", DOCKER_LIST),
            (format!(r#"{{"mediaType":"{DOCKER_MANIFEST}","layers":[]}}"#), DOCKER_MANIFEST, DOCKER_MANIFEST),
        ] {
            assert_eq!(judged(&body, told).as_deref(), Ok(is), "{body}");
        }
    }

    #[test]
    fn img2_what_is_two_things_or_none_is_refused() {
        for (body, told, why) in [
            (r#"{"manifests":[],"layers":[]}"#.to_owned(), INDEX, "in one"),
            (r#"{"manifests":[],"layers":[]}"#.to_owned(), MANIFEST, "in one"),
            (r#"{"manifests":[]}"#.to_owned(), MANIFEST, "in one"),
            (format!(r#"{{"mediaType":"{INDEX}","manifests":[]}}"#), MANIFEST, "another media type"),
            (r#"{"mediaType":"application/x-other"}"#.to_owned(), MANIFEST, "not an image"),
            (r#"{"schemaVersion":1,"fsLayers":[]}"#.to_owned(), "", "schema 1"),
            ("<html>".to_owned(), MANIFEST, "no manifest"),
        ] {
            let error = judged(&body, told).unwrap_err();
            assert!(error.contains(why), "{body}: {error}");
        }
    }
}
