//! Before and after a run, through the binary: plan and doctor, and the audit.

mod copies;
mod doctor;
mod modes;
mod plan;
mod register;
mod trail;
