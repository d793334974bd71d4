//! The tree of verbs, and which file runs which.

use super::failure::Done;
use super::output::Output;
use super::{attach, commands, image, mcp, openapi, proof, service, session, tool, workspace};
use clap::{Parser, Subcommand};

/// Private copies of projects, commands in hardened containers, and a durable record of both.
#[derive(Debug, Parser)]
#[command(name = "sal", version)]
pub(crate) struct Sal {
    /// Print one JSON object a line; errors too, on standard error
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Start, stop and look at the service
    #[command(subcommand)]
    Service(Service),
    /// Make, list and remove sessions
    #[command(subcommand)]
    Session(Session),
    /// Look at a session's private copy
    #[command(subcommand)]
    Workspace(Workspace),
    /// Call a session's tools as a model does
    #[command(subcommand)]
    Tool(Tool),
    /// Run commands in containers
    #[command(subcommand)]
    Commands(Commands),
    /// Provision images
    #[command(subcommand)]
    Image(Image),
    /// Look at the startup proof
    #[command(subcommand)]
    Proof(Proof),
    /// Show and continue a session's conversation
    Attach(attach::Attach),
    /// Serve a session's tools over the Model Context Protocol
    Mcp(mcp::Mcp),
    /// Print the description of the control interface
    #[command(hide = true)]
    Openapi,
}

#[derive(Debug, Subcommand)]
enum Service {
    /// Start the service and wait until it is ready
    Start(service::start::Start),
    /// Say whether the service is ready
    Status(service::status::Status),
    /// Stop the service; running commands go on unless cancelled
    Stop(service::stop::Stop),
}

#[derive(Debug, Subcommand)]
enum Session {
    /// Make a session; with --coding, import a private copy of --cwd
    Create(session::create::Create),
    /// List all sessions
    List(session::list::List),
    /// Show one session
    Inspect(session::inspect::Inspect),
    /// End a session; its workspace is kept
    End(session::end::End),
    /// Delete a session, its workspace and its runs
    Rm(session::rm::Rm),
}

#[derive(Debug, Subcommand)]
enum Workspace {
    /// Show revision, digest, root and what differs on disk
    Inspect(workspace::inspect::Inspect),
    /// Print the changes since the import, as a patch for `git apply`
    Diff(workspace::diff::Diff),
    /// Adopt reviewed edits of the current root as a new revision
    Refresh(workspace::refresh::Refresh),
}

#[derive(Debug, Subcommand)]
enum Tool {
    /// Call a tool with the JSON on standard input
    Call(tool::call::Call),
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Start a command; the same step key answers the same run
    Start(commands::start::Start),
    /// Show a run
    Inspect(commands::inspect::Inspect),
    /// Write a run's output
    Logs(commands::logs::Logs),
    /// Cancel a run and wait until it is gone
    Cancel(commands::cancel::Cancel),
    /// Settle a run whose backend or cleanup is uncertain
    Reconcile(commands::reconcile::Reconcile),
    /// List the runs of a session
    List(commands::list::List),
}

#[derive(Debug, Subcommand)]
enum Image {
    /// Pull an image from a registry, by digest
    Pull(image::pull::Pull),
    /// Import an OCI image layout or a `docker save` archive
    Import(image::import::Import),
    /// List the images in the store
    Ls(image::ls::Ls),
    /// Show one image
    Inspect(image::inspect::Inspect),
    /// Compare all of an image, or of every image, with what was imported
    Verify(image::verify::Verify),
    /// Show or set the image that commands run in
    Default(image::default::Default),
    /// Remove an image that no service uses
    Rm(image::rm::Rm),
    /// Give back what no image, service or run needs
    Gc(image::gc::Gc),
}

#[derive(Debug, Subcommand)]
enum Proof {
    /// Print the startup proof
    Show(proof::show::Show),
    /// Compare two proofs control by control
    Compare(proof::compare::Compare),
}

impl Sal {
    /// Runs the verb.
    pub(crate) fn run(self, out: Output) -> Done {
        match self.verb {
            Verb::Service(Service::Start(verb)) => verb.run(out),
            Verb::Service(Service::Status(verb)) => verb.run(out),
            Verb::Service(Service::Stop(verb)) => verb.run(out),
            Verb::Session(Session::Create(verb)) => verb.run(out),
            Verb::Session(Session::List(verb)) => verb.run(out),
            Verb::Session(Session::Inspect(verb)) => verb.run(out),
            Verb::Session(Session::End(verb)) => verb.run(out),
            Verb::Session(Session::Rm(verb)) => verb.run(out),
            Verb::Workspace(Workspace::Inspect(verb)) => verb.run(out),
            Verb::Workspace(Workspace::Diff(verb)) => verb.run(out),
            Verb::Workspace(Workspace::Refresh(verb)) => verb.run(out),
            Verb::Tool(Tool::Call(verb)) => verb.run(out),
            Verb::Commands(Commands::Start(verb)) => verb.run(out),
            Verb::Commands(Commands::Inspect(verb)) => verb.run(out),
            Verb::Commands(Commands::Logs(verb)) => verb.run(out),
            Verb::Commands(Commands::Cancel(verb)) => verb.run(out),
            Verb::Commands(Commands::Reconcile(verb)) => verb.run(out),
            Verb::Commands(Commands::List(verb)) => verb.run(out),
            Verb::Image(Image::Pull(verb)) => verb.run(out),
            Verb::Image(Image::Import(verb)) => verb.run(out),
            Verb::Image(Image::Ls(verb)) => verb.run(out),
            Verb::Image(Image::Inspect(verb)) => verb.run(out),
            Verb::Image(Image::Verify(verb)) => verb.run(out),
            Verb::Image(Image::Default(verb)) => verb.run(out),
            Verb::Image(Image::Rm(verb)) => verb.run(out),
            Verb::Image(Image::Gc(verb)) => verb.run(out),
            Verb::Proof(Proof::Show(verb)) => verb.run(out),
            Verb::Proof(Proof::Compare(verb)) => verb.run(),
            Verb::Attach(verb) => verb.run(),
            Verb::Mcp(verb) => verb.run(),
            Verb::Openapi => openapi::run(out),
        }
    }
}
