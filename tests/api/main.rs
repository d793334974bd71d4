//! The control interface from outside: a service on the scripted executor behind its real socket.

mod peer;
mod rig;
mod routes;
mod socket;
