//! What private standardisation found, written down once.
//!
//! The file `map` beside the results of the moments: how many clients' releases were averaged, and their mean, bit for bit. The study that
//! follows from it has its own digest and budget, so it must not be computed anew from releases that arrive later.

use std::path::{Path, PathBuf};

use undertone_core::privacy::Masking;
use undertone_core::study::Study;
use undertone_data::mean;

use crate::error::{PeerError, StateError};
use crate::state::{read_ledger, results_folder, write_whole};

/// Where a study's map is kept.
pub(crate) struct Map<'a> {
    state: &'a Path,
    path: PathBuf,
    study: &'a Study,
    masking: Option<Masking>,
    moments: [u8; 32],
    features: usize,
}

impl<'a> Map<'a> {
    /// The map of a study whose moments are this study.
    pub fn of(state: &'a Path, study: &'a Study, moments: &Study, masking: Option<Masking>) -> Result<Self, PeerError> {
        let digest = moments.digest().whole();
        let path = results_folder(state, moments.name(), &digest).join("map");
        Ok(Self { state, path, study, masking, moments: digest, features: moments.features() })
    }

    /// The study that follows from what was written down; none if nothing was yet.
    pub fn fitted(&self) -> Result<Option<Study>, PeerError> {
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(PeerError::Io { path: self.path.clone(), what: "cannot be read", source }),
        };
        let damaged = || PeerError::State { path: self.path.clone(), source: StateError::MapDamaged };
        let (body, hash) = bytes.split_last_chunk::<32>().ok_or_else(damaged)?;
        let (clients, values) = body.split_first_chunk::<4>().ok_or_else(damaged)?;
        if blake3::hash(body).as_bytes() != hash || values.len() != 8 * self.features {
            return Err(damaged());
        }
        let values = values.chunks_exact(8).map(|bytes| f64::from_le_bytes(bytes.try_into().expect("eight bytes")));
        self.standardised(&values.collect::<Vec<_>>(), u32::from_le_bytes(*clients)).map(Some)
    }

    /// Writes down what the last releases of the moments give, before the first round of the study that follows.
    pub fn keep(&self, finals: &[(u32, Vec<f64>)]) -> Result<Study, PeerError> {
        let flat: Vec<f64> = finals.iter().flat_map(|(_, values)| values.iter().copied()).collect();
        let (mean, clients) = (mean(&flat, self.features), finals.len() as u32);
        let study = self.standardised(&mean, clients)?;
        self.refuse_second(&study)?;
        let mut bytes = clients.to_le_bytes().to_vec();
        mean.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
        bytes.extend(blake3::hash(&bytes).as_bytes());
        write_whole(&self.path, &bytes)?;
        Ok(study)
    }

    fn standardised(&self, mean: &[f64], clients: u32) -> Result<Study, PeerError> {
        let divisor = self.study.mean_records().expect("the roster refuses a study without it");
        let trust = self.masking.as_ref().map(|masking| &masking.trust);
        Ok(self.study.standardised(mean, clients as usize, divisor, trust)?)
    }

    /// Refuses a second study after the same moments: the ledger shows if there was one, and its map was lost.
    fn refuse_second(&self, fitted: &Study) -> Result<(), PeerError> {
        let Some(contents) = read_ledger(self.state)? else { return Ok(()) };
        let runs = contents.runs.iter().map(|run| (&run.begin.study, &run.begin.name[..]));
        match has_other(runs, &self.moments, self.study.name(), &fitted.digest().whole()) {
            true => Err(PeerError::State { path: self.path.clone(), source: StateError::MapLost }),
            false => Ok(()),
        }
    }
}

/// Whether a study of this name and another digest than `fitted` follows the moments, before the next moments of that name.
fn has_other<'a>(
    runs: impl Iterator<Item = (&'a [u8; 32], &'a str)>,
    moments: &[u8; 32],
    name: &str,
    fitted: &[u8; 32],
) -> bool {
    let next = format!("{name}-moments");
    let mut after = runs.skip_while(|(study, _)| *study != moments).skip(1).take_while(|(_, n)| *n != next);
    after.any(|(study, n)| n == name && study != fitted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUDY: &str = "name = \"t\"\nrounds = 5\n[problem]\nloss = \"squared\"\n[data]\nsource = \"folder\"\nrecords = 20\n\
        features = [\"a\"]\ntarget = \"y\"\nintercept = true\nbounds.a = [0, 10]\nbounds.y = [0, 10]\n[graph]\nkind = \"ring\"\n\
        [algorithm]\nname = \"zcdp-grad-nfl\"\neta = 1\n[privacy]\nepsilon = 9\ndelta = 1e-5\nclip = 1\nstandardise = 0.3\n";

    #[test]
    fn what_was_written_down_decides() {
        let study = Study::parse(STUDY, "t").unwrap();
        let moments = study.moments().unwrap();
        let state = tempfile::tempdir().unwrap();
        let map = Map::of(state.path(), &study, &moments, None).unwrap();
        assert!(map.fitted().unwrap().is_none());
        std::fs::create_dir_all(map.path.parent().unwrap()).unwrap();
        std::fs::write(state.path().join("ledger"), []).unwrap();
        let finals =
            |shift: f64| (0..3).map(|k| (k, vec![0.1 * f64::from(k) + shift; moments.features()])).collect::<Vec<_>>();
        let first = map.keep(&finals(0.0)).unwrap();
        let other = map.standardised(&vec![0.5; moments.features()], 3).unwrap();
        assert_ne!(first.digest().whole(), other.digest().whole(), "another map is another study");
        assert_eq!(map.fitted().unwrap().unwrap().digest().whole(), first.digest().whole());
        let bytes = std::fs::read(&map.path).unwrap();
        for damage in [&bytes[..bytes.len() - 1], &bytes[1..], &[]] {
            std::fs::write(&map.path, damage).unwrap();
            assert!(map.fitted().is_err_and(|e| e.to_string().contains("is damaged") && e.is_input()));
        }
    }

    #[test]
    fn the_ledger_tells_whether_rounds_were_made_with_another_map() {
        let [m, a, b, n] = [[1; 32], [2; 32], [3; 32], [4; 32]];
        let runs = |list: &[([u8; 32], &'static str)]| list.to_vec();
        let second = |list: &[([u8; 32], &'static str)], fitted: &[u8; 32]| {
            let list = runs(list);
            has_other(list.iter().map(|(study, name)| (study, *name)), &m, "t", fitted)
        };
        assert!(!second(&[], &a) && !second(&[(m, "t-moments")], &a));
        assert!(!second(&[(m, "t-moments"), (a, "t")], &a), "the same study goes on");
        assert!(second(&[(m, "t-moments"), (a, "t")], &b), "its budget would be spent twice");
        assert!(second(&[(m, "t-moments"), (n, "else"), (a, "t")], &b));
        assert!(!second(&[(a, "t"), (m, "t-moments")], &b), "before the moments");
        assert!(!second(&[(m, "t-moments"), (n, "t-moments"), (a, "t")], &b), "that follows other moments");
    }
}
