//! Errors as Python exceptions, with the sentences of the program.

use pyo3::prelude::*;
use undertone_audit::AuditError;
use undertone_core::client::RoundError;
use undertone_core::privacy::NoiseError;
use undertone_core::study::StudyError;
use undertone_data::DataError;
use undertone_peer::PeerError;
use undertone_plan::PlanError;
use undertone_plan::account::NoAnswer;
use undertone_sim::SimError;
use undertone_sim::folder::FolderError;

/// What went wrong, before it is a Python exception: other threads make it without the interpreter.
#[derive(Debug)]
pub struct Fault {
    class: &'static str,
    message: String,
}

impl Fault {
    /// A fault of the class of this name in `undertone._errors`.
    pub fn new(class: &'static str, message: impl ToString) -> Self {
        Self { class, message: message.to_string() }
    }

    /// A mistake in Undertone.
    pub fn internal(message: impl ToString) -> Self {
        Self::new("InternalError", message)
    }
}

impl From<Fault> for PyErr {
    fn from(fault: Fault) -> Self {
        Python::attach(|py| {
            let made = py.import("undertone._errors").and_then(|module| module.getattr(fault.class));
            made.and_then(|class| class.call1((fault.message,))).map_or_else(|error| error, PyErr::from_value)
        })
    }
}

impl From<StudyError> for Fault {
    fn from(error: StudyError) -> Self {
        Self::new("StudyError", error)
    }
}

impl From<DataError> for Fault {
    fn from(error: DataError) -> Self {
        Self::new("DataError", error)
    }
}

impl From<NoAnswer> for Fault {
    fn from(error: NoAnswer) -> Self {
        Self::new("StudyError", error)
    }
}

impl From<PlanError> for Fault {
    fn from(error: PlanError) -> Self {
        let class = match &error {
            PlanError::Cancelled => "Interrupted",
            PlanError::Data(_) | PlanError::Run(SimError::Data(_)) => "DataError",
            _ => "StudyError",
        };
        Self::new(class, error)
    }
}

impl From<SimError> for Fault {
    fn from(error: SimError) -> Self {
        let class = match &error {
            SimError::Data(_) | SimError::OtherStudy => "DataError",
            SimError::Cancelled => "Interrupted",
            SimError::Round { reason: RoundError::Noise(NoiseError::NoEntropy(_)), .. } => "MachineError",
            _ => "StudyError",
        };
        Self::new(class, error)
    }
}

impl From<FolderError> for Fault {
    fn from(error: FolderError) -> Self {
        Self::new("MachineError", error)
    }
}

impl From<AuditError> for Fault {
    fn from(error: AuditError) -> Self {
        let class = match &error {
            AuditError::Peers(_) | AuditError::Noise(_) => "MachineError",
            AuditError::Cancelled => "Interrupted",
            _ => "StudyError",
        };
        Self::new(class, error)
    }
}

impl From<PeerError> for Fault {
    fn from(error: PeerError) -> Self {
        let class = match &error {
            PeerError::Limit(_) | PeerError::Unconfirmed(_) | PeerError::Policy(_) => "LimitError",
            PeerError::Data(_) => "DataError",
            PeerError::Study(_) | PeerError::Roster(_) => "StudyError",
            error if error.is_result() => "ResultError",
            error if error.is_input() => "PeerError",
            _ => "MachineError",
        };
        Self::new(class, error)
    }
}
