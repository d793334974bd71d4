//! Whether a state directory still needs the images that it marked.

use crate::service::state_dir;
use std::path::Path;

/// True while a service holds `state`, or a run in it is unsettled.
pub(super) fn busy(state: &Path) -> bool {
    state_dir::is_busy(state)
}
