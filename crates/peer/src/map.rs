//! What the releases of one stage gave, written down once before the next stage starts.
//!
//! The file `map` beside the results of a stage: how many clients' releases were averaged, and their mean, bit for bit. The study that
//! follows from it, with standardised columns or for a closing release, has its own digest and budget, so it must not be computed anew from releases that
//! arrive later.

use std::path::{Path, PathBuf};

use undertone_core::study::Study;
use undertone_data::mean;

use crate::error::{PeerError, StateError};
use crate::state::{read_ledger, results_folder, write_whole};

/// Makes the study that follows a stage, from the mean of its last releases and the number of clients that made them.
type Follow<'a> = Box<dyn Fn(&[f64], usize) -> Result<Study, PeerError> + 'a>;

/// Where the mean of a stage's releases is kept, and what follows from it.
pub(crate) struct Map<'a> {
    state: &'a Path,
    path: PathBuf,
    /// The stage.
    stage: [u8; 32],
    stage_name: String,
    features: usize,
    /// The name of the study that follows.
    next_name: String,
    follow: Follow<'a>,
}

impl<'a> Map<'a> {
    /// Of a stage that a study of that name follows.
    pub fn of(state: &'a Path, stage: &Study, next_name: impl Into<String>, follow: Follow<'a>) -> Self {
        let digest = stage.digest().whole();
        let path = results_folder(state, stage.name(), &digest).join("map");
        let (stage_name, next_name) = (stage.name().to_string(), next_name.into());
        Self { state, path, stage: digest, stage_name, features: stage.features(), next_name, follow }
    }

    /// The study that follows from what was written down; none if nothing was yet.
    pub fn next(&self) -> Result<Option<Study>, PeerError> {
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
        (self.follow)(&values.collect::<Vec<_>>(), u32::from_le_bytes(*clients) as usize).map(Some)
    }

    /// The same; if nothing was written down yet, what these last releases give is, before the study that follows starts.
    pub fn keep(&self, finals: &[(u32, Vec<f64>)]) -> Result<Study, PeerError> {
        if let Some(study) = self.next()? {
            return Ok(study);
        }
        let flat: Vec<f64> = finals.iter().flat_map(|(_, values)| values.iter().copied()).collect();
        let (mean, clients) = (mean(&flat, self.features), finals.len() as u32);
        let study = (self.follow)(&mean, clients as usize)?;
        self.refuse_second(&study)?;
        let mut bytes = clients.to_le_bytes().to_vec();
        mean.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
        bytes.extend(blake3::hash(&bytes).as_bytes());
        write_whole(&self.path, &bytes)?;
        Ok(study)
    }

    /// Refuses a second study after the same stage: the ledger shows if there was one, and its map was lost.
    fn refuse_second(&self, next: &Study) -> Result<(), PeerError> {
        let Some(contents) = read_ledger(self.state)? else { return Ok(()) };
        let runs = contents.runs.iter().map(|run| (&run.begin.study, &run.begin.name[..]));
        match has_other(runs, (&self.stage, &self.stage_name), &self.next_name, &next.digest().whole()) {
            true => Err(PeerError::State { path: self.path.clone(), source: StateError::MapLost }),
            false => Ok(()),
        }
    }
}

/// Whether a study of the next name and another digest than `next` follows the stage, before the next stage of that name.
fn has_other<'a>(
    runs: impl Iterator<Item = (&'a [u8; 32], &'a str)>,
    (stage, stage_name): (&[u8; 32], &str),
    next_name: &str,
    next: &[u8; 32],
) -> bool {
    let mut after = runs.skip_while(|(study, _)| *study != stage).skip(1).take_while(|(_, n)| *n != stage_name);
    after.any(|(study, n)| n == next_name && study != next)
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
        let (state, results) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let follow = |mean: &[f64], clients: usize| Ok(study.standardised(mean, clients, 20.0, None)?);
        let mut map = Map::of(state.path(), &moments, "t", Box::new(follow));
        // Results beside a ledger without a study would be refused.
        map.path = results.path().join("map");
        assert!(map.next().unwrap().is_none());
        std::fs::write(state.path().join("ledger"), []).unwrap();
        let finals =
            |shift: f64| (0..3).map(|k| (k, vec![0.1 * f64::from(k) + shift; moments.features()])).collect::<Vec<_>>();
        let first = map.keep(&finals(0.0)).unwrap();
        let other = follow(&vec![0.5; moments.features()], 3).unwrap();
        assert_ne!(first.digest().whole(), other.digest().whole(), "another map is another study");
        assert_eq!(map.next().unwrap().unwrap().digest().whole(), first.digest().whole());
        assert_eq!(
            map.keep(&finals(0.5)).unwrap().digest().whole(),
            first.digest().whole(),
            "later releases change nothing"
        );
        let bytes = std::fs::read(&map.path).unwrap();
        for damage in [&bytes[..bytes.len() - 1], &bytes[1..], &[]] {
            std::fs::write(&map.path, damage).unwrap();
            assert!(map.next().is_err_and(|e| e.to_string().contains("is damaged") && e.is_input()));
        }
    }

    #[test]
    fn the_ledger_tells_whether_rounds_were_made_with_another_map() {
        let [m, a, b, n] = [[1; 32], [2; 32], [3; 32], [4; 32]];
        let second = |list: &[([u8; 32], &'static str)], next: &[u8; 32]| {
            has_other(list.iter().map(|(study, name)| (study, *name)), (&m, "t-moments"), "t", next)
        };
        assert!(!second(&[], &a) && !second(&[(m, "t-moments")], &a));
        assert!(!second(&[(m, "t-moments"), (a, "t")], &a), "the same study goes on");
        assert!(second(&[(m, "t-moments"), (a, "t")], &b), "its budget would be spent twice");
        assert!(second(&[(m, "t-moments"), (n, "else"), (a, "t")], &b));
        assert!(!second(&[(a, "t"), (m, "t-moments")], &b), "before the moments");
        assert!(!second(&[(m, "t-moments"), (n, "t-moments"), (a, "t")], &b), "that follows other moments");
    }
}
