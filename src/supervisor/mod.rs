//! The supervisor: one single-threaded process a container, which outlives the service.
//!
//! It owns the container's whole life: create, verify, start, drain output, enforce the deadline,
//! collect the exit status and kernel evidence, kill, remove, check, and record each step. It needs
//! no service to finish. See ARCHITECTURE.md, "Supervisor".

mod cgroup;
mod container;
mod evidence;
mod init;
mod life;
mod output;
mod record;
mod rootfs;
mod sweep;
mod sys;
mod verify;

pub use life::main;
