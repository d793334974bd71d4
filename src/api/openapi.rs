//! The interface's description, generated from the types and routes.

use super::routes::{commands, diff, logs, service, sessions, tools};
use crate::domain::diff::{Content, FileChange};
use crate::domain::manifest::Change;
use crate::domain::outcome::Cause;
use crate::domain::refusal::Code;
use crate::domain::run::{Cleanup, RunState};
use crate::domain::session::SessionKind;
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};
use utoipa::{OpenApi, PartialSchema, ToSchema};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Salaam's coding executor",
        description = "HTTP/1.1 and JSON over the Unix socket control.sock in the state directory."
    ),
    paths(
        service::status,
        service::shutdown,
        service::proof,
        service::openapi,
        sessions::create,
        sessions::list,
        sessions::inspect,
        sessions::end,
        sessions::remove,
        sessions::workspace,
        sessions::refresh,
        commands::start,
        commands::list,
        commands::inspect,
        commands::cancel,
        commands::reconcile,
        logs::logs,
        tools::list,
        tools::call,
        diff::diff,
    )
)]
struct V1;

/// The OpenAPI document, as indented JSON that ends with a line feed.
pub fn document() -> String {
    match V1::openapi().to_pretty_json() {
        Ok(mut text) => {
            text.push('\n');
            text
        }
        // Only a map with keys that are no strings could fail; the document has none.
        Err(error) => format!("{{\"error\":\"{error}\"}}\n"),
    }
}

/// Describes enumerations of the domain by the names that serde gives them. The match makes a new
/// variant a compile error here.
macro_rules! names {
    ($type:ident: $($variant:ident)*) => {
        impl PartialSchema for $type {
            fn schema() -> utoipa::openapi::RefOr<Schema> {
                let all = [$($type::$variant),*];
                let names = all.iter().map(|value| match value {
                    $($type::$variant => serde_json::to_value(value).unwrap_or_default(),)*
                });
                ObjectBuilder::new()
                    .schema_type(SchemaType::new(Type::String))
                    .enum_values(Some(names))
                    .build()
                    .into()
            }
        }

        impl ToSchema for $type {
            fn name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
        }
    };
}

names!(SessionKind: Ordinary Coding);
names!(Change: Added Modified Deleted);
names!(FileChange: Added Deleted Modified Mode);
names!(Content: Text Control Binary Lost);
names!(RunState: Requested Creating Running Finishing Finished Interrupted);
names!(Cleanup: None Pending Confirmed Uncertain);
names!(Cause: Exited Signalled Deadline Cancelled Oom PidsLimit FileSizeLimit WorkFull OutputChanged
    BackendLost StartFailed Interrupted);
names!(Code: Invalid NotFound NotBuilt Forbidden Busy Conflict StaleRevision WorkspaceChanged
    ImportRefused PatchRefused LimitExceeded NotReady ProofFailed Image UnsafePath AlreadyRunning
    NotRunning Host Internal);

#[cfg(test)]
mod tests {
    /// Regenerate with `cargo run -- openapi > docs/openapi.json`.
    #[test]
    fn the_checked_in_description_is_the_generated_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/openapi.json");
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            kept == super::document(),
            "docs/openapi.json is out of date; regenerate it: cargo run -- openapi > docs/openapi.json"
        );
    }
}
