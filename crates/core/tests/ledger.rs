//! The ledger on disks that stop at any byte of any write, and with any byte of it damaged.

mod common;

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use undertone_core::client::LARGEST_VALUE;
use undertone_core::client::{Cost, Release};
use undertone_core::identity::Identity;
use undertone_core::ledger::{
    Begin, Carried, Contents, Disk, EdgeRecord, Ledger, LedgerError, MemoryDisk, Place, Resumed, RoundRecord, Sealed,
};
use undertone_core::message::{Chain, Receipt};
use undertone_core::privacy::{Accountant, ClientBudget, Delta, Rho, Schedule, Spent};
use undertone_core::study::{Limits, Study};

const LIMITS: Limits = Limits { features: 2, rounds: 6, clients: 3, largest: LARGEST_VALUE };
const RHO: f64 = 0.125;

/// A disk shared with the test, that accepts a limited number of writes and bytes.
#[derive(Clone, Default)]
struct Fragile {
    content: Rc<RefCell<MemoryDisk>>,
    /// Writes that succeed, and bytes of the next one that reach the disk before it fails.
    dies: Option<(usize, usize)>,
    writes: Rc<RefCell<Vec<usize>>>,
    /// Marks: two beside the ledger, and the anchor.
    marks: Rc<RefCell<[MemoryDisk; 3]>>,
    /// Whether the owner named a place for the third.
    anchored: bool,
    /// Writes of marks that succeed, and bytes of the next one.
    marks_die: Option<(usize, usize)>,
    marked: Rc<RefCell<usize>>,
}

impl Disk for Fragile {
    fn size(&mut self) -> io::Result<u64> {
        self.content.borrow_mut().size()
    }

    fn read(&mut self, at: u64, count: usize) -> io::Result<Vec<u8>> {
        self.content.borrow_mut().read(at, count)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let done = self.writes.borrow().len();
        let through = match self.dies {
            Some((writes, _)) if done > writes => 0,
            Some((writes, kept)) if done == writes => kept.min(bytes.len()),
            _ => bytes.len(),
        };
        self.writes.borrow_mut().push(bytes.len());
        if through > 0 {
            self.content.borrow_mut().write(at, &bytes[..through])?;
        }
        if self.dies.is_some_and(|(writes, _)| done >= writes) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        Ok(())
    }

    fn keeps_marks(&self) -> bool {
        true
    }

    fn has_anchor(&self) -> bool {
        self.anchored
    }

    fn read_mark(&mut self, place: Place) -> io::Result<Vec<u8>> {
        Ok(self.marks.borrow()[place as usize].0.clone())
    }

    fn write_mark(&mut self, place: Place, at: u64, bytes: &[u8], _durable: bool) -> io::Result<()> {
        let done = *self.marked.borrow();
        *self.marked.borrow_mut() += 1;
        let through = match self.marks_die {
            Some((writes, _)) if done > writes => 0,
            Some((writes, kept)) if done == writes => kept.min(bytes.len()),
            _ => bytes.len(),
        };
        self.marks.borrow_mut()[place as usize].write(at, &bytes[..through])?;
        match self.marks_die {
            Some((writes, _)) if done >= writes => Err(io::Error::from(io::ErrorKind::StorageFull)),
            _ => Ok(()),
        }
    }
}

fn chain() -> Chain {
    let text = "rounds = 6\n[problem]\nloss = \"squared\"\n[data]\nsource = \"synthetic\"\nclients = 3\nfeatures = 2\n\
                [graph]\nkind = \"ring\"\n[algorithm]\nname = \"zcdp-nfl\"\nrho = 1.0\neta = 1.0\n\
                [privacy]\nepsilon = 1.0\ndelta = 1e-5\nclip = 1.0\n";
    Chain::new(Study::parse(text, "t").unwrap().digest())
}

fn identity() -> Arc<Identity> {
    Arc::new(Identity::from_secret(&[9; 32]))
}

fn rho(value: f64) -> Rho {
    Rho::new(value).unwrap()
}

fn cost(rho: f64) -> Spent {
    Spent::without_masks(Rho::new(rho).unwrap())
}

fn begin(study: u8) -> Begin {
    Begin {
        study: [study; 32],
        name: format!("study {study}"),
        rounds: LIMITS.rounds,
        features: 2,
        degree: 2,
        memory: 1,
        clients: 3,
        colluders: 2,
        total: cost(RHO * 6.0),
        epsilon: 1.0,
        delta: 1e-5,
        next: cost(RHO),
        protected: true,
        data: [7; 32],
        time: 0,
    }
}

/// Six rounds of the same cost.
fn budget() -> ClientBudget {
    let schedule = Schedule::geometric_from_first(Rho::new(RHO).unwrap(), LIMITS.rounds, 1.0).unwrap();
    ClientBudget::new(Arc::new(schedule), None, Accountant::Exact, Delta::new(1e-5).unwrap())
}

fn enter(disk: Fragile, study: u8) -> Result<(Ledger<Fragile>, Resumed), LedgerError> {
    Ledger::enter(disk, identity(), chain(), LIMITS, begin(study), Some(budget()))
}

/// Does the next round, from the records if it may be; `noise` makes it different from any other attempt.
fn step(
    ledger: &mut Ledger<Fragile>,
    last: &mut Option<RoundRecord>,
    noise: f64,
) -> Result<(Sealed, Cost), LedgerError> {
    let round = last.as_ref().map_or(1, |l| l.round + 1);
    let fresh = ledger.may_use_records();
    let before = last.as_ref().map_or(vec![0.0; 2], |l| l.released.clone());
    let edge = |neighbour| EdgeRecord {
        neighbour,
        receipt: Receipt { round: round - 1, head: [1; 32], tag: [2; 16] },
        disagreement: vec![0.5; 2],
    };
    let values = if fresh { vec![f64::from(round) + noise, 1.0 + noise] } else { before };
    let carried = Carried { prior: [3; 32], memory: vec![0.25; 2], edges: vec![edge(1), edge(2)] };
    let record =
        |release: &Release| Ok((ledger.record(release, carried.clone())?, release.cost(), release.values().to_vec()));
    let (sealed, spent, released) = common::with_release(round, &values, Some(&budget()), !fresh, record)?;
    let Carried { prior, memory, edges } = carried;
    *last = Some(RoundRecord { run: 0, round, cost: spent, next: cost(RHO), prior, released, memory, edges });
    Ok((sealed, spent))
}

/// What was returned to be sent, per round.
type Sent = Vec<Vec<u8>>;

/// A run from the contents of the disk to the last round, or until the disk fails.
fn run(disk: &Fragile, noise: f64, sent: &mut Sent) -> Result<(), LedgerError> {
    let (mut ledger, Resumed { mut last, frames, .. }) = enter(disk.clone(), 1)?;
    for frame in &frames {
        // Bytes sent again must be the same as before.
        let round = frame.receipt().round as usize;
        match sent.get(round - 1) {
            Some(before) => assert_eq!(before, frame.frame().bytes(), "round {round} changed"),
            None => sent.push(frame.frame().bytes().to_vec()),
        }
    }
    assert!(sent.len() <= last.as_ref().map_or(0, |l| l.round as usize), "something was sent without being recorded");
    while last.as_ref().is_none_or(|l| l.round < LIMITS.rounds) {
        let (sealed, _) = step(&mut ledger, &mut last, noise)?;
        sent.push(sealed.frame().bytes().to_vec());
    }
    Ok(())
}

/// Rounds whose release differs from the one before.
fn fresh(sent: &Sent) -> usize {
    let payload = |round: usize| if round == 0 { vec![0; 16] } else { sent[round - 1][5..21].to_vec() };
    (1..=sent.len()).filter(|round| payload(*round) != payload(round - 1)).count()
}

fn spent(disk: &Fragile) -> f64 {
    Contents::read(&mut disk.clone()).unwrap().unwrap().spent().unwrap().rho.get()
}

#[test]
fn a_crash_at_every_byte_of_every_write_loses_nothing() {
    let whole = Fragile::default();
    run(&whole, 0.0, &mut Sent::new()).unwrap();
    let lengths = whole.writes.borrow().clone();
    assert_eq!(lengths.len(), 1 + 1 + 1 + 1 + 6, "owner, once more, room, begin, and one write per round");
    let mut torn = 0;
    for (write, length) in lengths.iter().enumerate() {
        // Of the zeros written ahead a few positions are enough.
        let step = if *length > 10_000 { 9973 } else { 1 };
        for kept in (0..=*length).step_by(step) {
            let disk = Fragile { dies: Some((write, kept)), ..Fragile::default() };
            let mut sent = Sent::new();
            let error = run(&disk, 0.0, &mut sent).unwrap_err();
            assert!(matches!(error, LedgerError::Disk("written", _)), "{error}");
            let after = Fragile { dies: None, ..disk.clone() };
            torn += u32::from(Contents::read(&mut after.clone()).unwrap().is_some_and(|c| c.torn));
            run(&after, 1e-3, &mut sent).unwrap();
            assert_eq!(sent.len(), 6);
            assert!(spent(&after) >= RHO * fresh(&sent) as f64, "write {write}, byte {kept}: spent too little");
            assert!(spent(&after) <= RHO * 6.0 * (1.0 + 1e-11), "write {write}, byte {kept}: spent too much");
        }
    }
    assert!(torn > 1000, "only {torn} records were truncated");
}

#[test]
fn two_crashes_in_a_row_lose_nothing_either() {
    let whole = Fragile::default();
    run(&whole, 0.0, &mut Sent::new()).unwrap();
    for write in 4..whole.writes.borrow().len() {
        for kept in [0, 1, 8, 40, 100, 200] {
            for again in 0..4 {
                for kept_again in [0, 1, 8, 40, 100] {
                    let disk = Fragile { dies: Some((write, kept)), ..Fragile::default() };
                    let mut sent = Sent::new();
                    run(&disk, 0.0, &mut sent).unwrap_err();
                    let second = Fragile { dies: Some((again, kept_again)), writes: Rc::default(), ..disk.clone() };
                    let _ = run(&second, 1e-3, &mut sent);
                    let third = Fragile { dies: None, ..second };
                    run(&third, 2e-3, &mut sent).unwrap();
                    assert!(spent(&third) >= RHO * fresh(&sent) as f64);
                    assert!(spent(&third) <= RHO * 6.0 * (1.0 + 1e-11));
                }
            }
        }
    }
}

#[test]
fn a_record_that_was_cut_off_is_charged_once_and_its_round_repeated() {
    let disk = Fragile { dies: Some((6, 100)), ..Fragile::default() };
    let mut sent = Sent::new();
    run(&disk, 0.0, &mut sent).unwrap_err();
    assert_eq!(sent.len(), 2);
    let after = Fragile { dies: None, ..disk };
    for _ in 0..3 {
        // However often it is read.
        assert!((spent(&after) - 3.0 * RHO).abs() < 1e-9);
        drop(enter(after.clone(), 1).unwrap());
    }
    run(&after, 1e-3, &mut sent).unwrap();
    assert_eq!(sent[1][5..21], sent[2][5..21], "round 3 repeats round 2");
    assert!((spent(&after) - 6.0 * RHO).abs() < 1e-9);
}

#[test]
fn damage_before_the_last_record_is_refused() {
    let whole = Fragile::default();
    run(&whole, 0.0, &mut Sent::new()).unwrap();
    let bytes = whole.content.borrow().0.clone();
    let lengths = whole.writes.borrow().clone();
    let records: usize = lengths[0] + lengths[3..].iter().sum::<usize>();
    let last = records - lengths.last().unwrap();
    for at in 0..records {
        whole.content.borrow_mut().0[at] ^= 0x10;
        // Marks say that the last record was written whole, so no crash explains that it is not.
        let read = Contents::read(&mut whole.clone());
        assert!(
            matches!(read, Err(LedgerError::Damaged { .. } | LedgerError::NotALedger | LedgerError::Shortened { .. })),
            "byte {at}: {read:?}"
        );
        whole.content.borrow_mut().0[at] ^= 0x10;
    }
    // As it is after a loss of power in the last write, when its mark was not written yet: its round is charged.
    let cut = Fragile { dies: Some((lengths.len() - 1, 100)), ..Fragile::default() };
    run(&cut, 0.0, &mut Sent::new()).unwrap_err();
    for at in last..last + 100 {
        cut.content.borrow_mut().0[at] ^= 0x10;
        let contents = Contents::read(&mut cut.clone()).unwrap().unwrap();
        assert!(contents.torn && (contents.spent().unwrap().rho.get() - 6.0 * RHO).abs() < 1e-9, "byte {at}");
        cut.content.borrow_mut().0[at] ^= 0x10;
    }
    // Two damaged records at the end are more than a crash explains.
    whole.content.borrow_mut().0 = bytes;
    for at in [last + 50, last - 50] {
        whole.content.borrow_mut().0[at] ^= 1;
    }
    assert!(Contents::read(&mut whole.clone()).is_err());
}

/// A ledger that lost its end in any way is not a ledger of a shorter history.
#[test]
fn a_ledger_that_was_cut_off_or_emptied_is_refused() {
    let whole = Fragile::default();
    run(&whole, 0.0, &mut Sent::new()).unwrap();
    let bytes = whole.content.borrow().0.clone();
    let records: usize = whole.writes.borrow()[0] + whole.writes.borrow()[3..].iter().sum::<usize>();
    let refused = |content: Vec<u8>, what: &str| {
        whole.content.borrow_mut().0 = content;
        let read = Contents::read(&mut whole.clone());
        let known = matches!(
            read,
            Err(LedgerError::Shortened { known: 8, .. } | LedgerError::Damaged { .. } | LedgerError::NotALedger)
        );
        assert!(known, "{what}: {read:?}");
        assert!(enter(whole.clone(), 2).is_err(), "{what}: no other study begins with it");
    };
    for length in (0..records).step_by(7).chain([0, 1, 100, 119, 120, 121, records - 1, records, bytes.len() - 1]) {
        refused(bytes[..length].to_vec(), &format!("cut to {length} bytes"));
        let mut zeroed = bytes.clone();
        // The last bytes are padding, which is zeros already.
        zeroed[length.min(records - 9)..].fill(0);
        refused(zeroed, &format!("zeros from byte {length} on"));
    }
    refused(vec![0; bytes.len()], "all zeros");
    // The same ledger with a shorter past, as from a backup of the ledger alone.
    let shorter = Fragile { dies: Some((8, 0)), ..Fragile::default() };
    run(&shorter, 0.0, &mut Sent::new()).unwrap_err();
    refused(shorter.content.borrow().0.clone(), "an older ledger");
    // It can pass: nothing was damaged in the test itself.
    whole.content.borrow_mut().0 = bytes.clone();
    assert!(Contents::read(&mut whole.clone()).unwrap().is_some());
    // Any one damaged mark is made up for by the other one; without both nothing shows that the ledger is whole.
    for place in 0..2 {
        for damage in [Vec::new(), vec![0; 1024], vec![7; 300]] {
            let before = std::mem::replace(&mut whole.marks.borrow_mut()[place].0, damage);
            assert!(Contents::read(&mut whole.clone()).unwrap().is_some());
            whole.marks.borrow_mut()[place].0 = before;
        }
    }
    whole.marks.borrow_mut()[..2].iter_mut().for_each(|mark| mark.0.clear());
    assert!(matches!(Contents::read(&mut whole.clone()), Err(LedgerError::NoMarks)));
}

/// The disk stops at any byte of any mark: the ledger goes on, and nothing is noised twice.
#[test]
fn a_crash_at_every_byte_of_every_mark_loses_nothing() {
    let whole = Fragile { anchored: true, ..Fragile::default() };
    run(&whole, 0.0, &mut Sent::new()).unwrap();
    let marks = *whole.marked.borrow();
    assert_eq!(marks, 3 * 8, "owner, begin and six rounds, in three places");
    for write in 0..marks {
        for kept in (0..160).step_by(3) {
            let disk = Fragile { marks_die: Some((write, kept)), anchored: true, ..Fragile::default() };
            let mut sent = Sent::new();
            assert!(matches!(run(&disk, 0.0, &mut sent).unwrap_err(), LedgerError::Disk("marked", _)));
            let after = Fragile { marks_die: None, ..disk };
            run(&after, 1e-3, &mut sent).unwrap_or_else(|e| panic!("mark {write}, byte {kept}: {e}"));
            assert_eq!(sent.len(), 6);
            assert!((spent(&after) - RHO * 6.0).abs() < 1e-9, "mark {write}, byte {kept}");
        }
    }
}

/// A folder restored as a whole is a valid one with an older past. The anchor, which was not restored with it, shows it.
#[test]
fn an_anchor_shows_that_a_folder_is_old() {
    let disk = Fragile { anchored: true, ..Fragile::default() };
    let (mut ledger, mut resumed) = enter(disk.clone(), 1).unwrap();
    assert!(ledger.is_anchored());
    let mut backups = Vec::new();
    for _ in 0..6 {
        backups.push((disk.content.borrow().0.clone(), disk.marks.borrow()[..2].to_vec()));
        step(&mut ledger, &mut resumed.last, 0.0).unwrap();
        // At once, not only at the end: the anchor is written before the frame exists.
        let restored = Fragile { anchored: true, ..Fragile::default() };
        let (content, marks) = backups.last().unwrap();
        restored.content.borrow_mut().0 = content.clone();
        restored.marks.borrow_mut()[..2].clone_from_slice(marks);
        restored.marks.borrow_mut()[2] = disk.marks.borrow()[2].clone();
        assert!(matches!(Contents::read(&mut restored.clone()), Err(LedgerError::BehindAnchor { .. })));
    }
    for (round, (content, marks)) in backups.into_iter().enumerate() {
        let restored = Fragile { anchored: true, ..Fragile::default() };
        restored.content.borrow_mut().0 = content;
        restored.marks.borrow_mut()[..2].clone_from_slice(&marks);
        // Without the anchor nothing shows it.
        let found = Contents::read(&mut restored.clone()).unwrap().unwrap();
        assert_eq!(found.runs[0].round, round as u32);
        restored.marks.borrow_mut()[2] = disk.marks.borrow()[2].clone();
        let refused = Contents::read(&mut restored.clone());
        assert!(matches!(refused, Err(LedgerError::BehindAnchor { known: 8, .. })), "round {round}: {refused:?}");
    }
    assert!(enter(disk.clone(), 1).unwrap().0.is_anchored(), "the newest folder is accepted");
    let other = Fragile { anchored: true, ..Fragile::default() };
    *other.marks.borrow_mut() = [MemoryDisk::default(), MemoryDisk::default(), disk.marks.borrow()[2].clone()];
    assert!(matches!(enter(other, 1), Err(LedgerError::BehindAnchor { .. })), "an emptied folder");
    let stranger = Arc::new(Identity::from_secret(&[8; 32]));
    let foreign = Fragile { anchored: true, ..Fragile::default() };
    drop(Ledger::enter(foreign.clone(), stranger, chain(), LIMITS, begin(1), Some(budget())).unwrap());
    foreign.marks.borrow_mut()[2] = disk.marks.borrow()[2].clone();
    assert!(matches!(Contents::read(&mut foreign.clone()), Err(LedgerError::ForeignAnchor(_))));
}

#[test]
fn a_foreign_ledger_and_other_data_are_refused() {
    let disk = Fragile::default();
    run(&disk, 0.0, &mut Sent::new()).unwrap();
    let stranger = Arc::new(Identity::from_secret(&[8; 32]));
    let foreign = Ledger::enter(disk.clone(), stranger, chain(), LIMITS, begin(1), Some(budget()));
    assert!(matches!(foreign, Err(LedgerError::Foreign { .. })));
    let other = Begin { data: [0; 32], ..begin(1) };
    let other = Ledger::enter(disk, identity(), chain(), LIMITS, other, Some(budget()));
    assert!(matches!(other, Err(LedgerError::OtherData)));
}

/// Records a release of a round with whatever else is needed.
fn record(
    ledger: &mut Ledger<Fragile>,
    round: u32,
    budget: Option<&ClientBudget>,
    withheld: bool,
) -> Result<Sealed, LedgerError> {
    let carried = Carried { prior: [3; 32], memory: vec![0.0; 2], edges: vec![] };
    common::with_release(round, &[1.0, 2.0], budget, withheld, |release| ledger.record(release, carried))
}

#[test]
fn no_round_twice_and_none_beyond_the_allowance() {
    let allowed = budget().allowing(cost(RHO * 1.5));
    let (mut ledger, _) =
        Ledger::enter(Fragile::default(), identity(), chain(), LIMITS, begin(1), Some(allowed)).unwrap();
    let all = budget();
    record(&mut ledger, 1, Some(&all), false).unwrap();
    assert!(matches!(record(&mut ledger, 1, Some(&all), false), Err(LedgerError::OutOfTurn(1))));
    assert!(matches!(record(&mut ledger, 2, Some(&all), false), Err(LedgerError::NotAllowed(2))));
    assert!(!ledger.may_use_records());
    record(&mut ledger, 2, Some(&all), true).unwrap();
    assert_eq!(ledger.run().spent, cost(RHO));
    assert_eq!(ledger.run().withheld(), 1);
}

/// What touched the records without protection has no rho, and a study that promises privacy cannot hold it.
#[test]
fn a_protected_study_takes_no_release_without_protection() {
    let disk = Fragile::default();
    let (mut ledger, _) = enter(disk.clone(), 1).unwrap();
    assert!(matches!(record(&mut ledger, 1, None, false), Err(LedgerError::Unprotected(1))));
    // Noised for another budget than the ledger's: it would be charged for what was not asked.
    let schedule = Schedule::geometric_from_first(rho(100.0 * RHO), LIMITS.rounds, 1.0).unwrap();
    let larger = ClientBudget::new(Arc::new(schedule), None, Accountant::Exact, Delta::new(1e-5).unwrap());
    assert!(matches!(record(&mut ledger, 1, Some(&larger), false), Err(LedgerError::OtherCost(1))));
    assert_eq!(ledger.run().spent, Spent::ZERO);
    drop(ledger);
    // The same study without its promise, or without a budget.
    let changed = Begin { protected: false, ..begin(1) };
    let changed = Ledger::enter(disk.clone(), identity(), chain(), LIMITS, changed, Some(budget()));
    assert!(matches!(changed, Err(LedgerError::OtherStudy)));
    let unlimited = Ledger::enter(disk.clone(), identity(), chain(), LIMITS, begin(1), None);
    assert!(matches!(unlimited, Err(LedgerError::OtherStudy)));
    // The same bytes in the ledger of a rehearsal, and then in one that claims to be protected: it is damaged.
    let rehearsal = Fragile::default();
    let begin = Begin { protected: false, ..begin(1) };
    let (mut ledger, _) = Ledger::enter(rehearsal, identity(), chain(), LIMITS, begin, None).unwrap();
    record(&mut ledger, 1, None, false).unwrap();
    assert_eq!(ledger.run().fresh, 1);
    assert_eq!(ledger.contents().spent(), None);
}

#[test]
fn studies_add_up_in_one_ledger() {
    let disk = Fragile::default();
    for study in 1..=3 {
        let (mut ledger, mut resumed) = enter(disk.clone(), study).unwrap();
        for _ in 0..study {
            step(&mut ledger, &mut resumed.last, 0.0).unwrap();
        }
    }
    // Resuming the first one later is still the first one.
    let (mut ledger, mut resumed) = enter(disk.clone(), 1).unwrap();
    step(&mut ledger, &mut resumed.last, 0.0).unwrap();
    let contents = Contents::read(&mut disk.clone()).unwrap().unwrap();
    assert_eq!(contents.runs.iter().map(|r| r.round).collect::<Vec<_>>(), [2, 2, 3]);
    assert!((contents.spent().unwrap().rho.get() - 7.0 * RHO).abs() < 1e-9);
}

/// Two studies of different sizes alternate in one ledger, and the disk stops at any byte of any write.
#[test]
fn a_crash_is_charged_to_the_study_that_was_writing() {
    // Study 2 has more features, so its records are longer.
    const WIDE: Limits = Limits { features: 40, ..LIMITS };
    let enter_wide = |disk: Fragile| {
        let begin = Begin { features: 40, ..begin(2) };
        Ledger::enter(disk, identity(), chain(), WIDE, begin, Some(budget()))
    };
    let wide_step = |ledger: &mut Ledger<Fragile>, last: &Option<RoundRecord>| {
        let round = last.as_ref().map_or(1, |l| l.round + 1);
        let fresh = ledger.may_use_records();
        let carried = Carried { prior: [3; 32], memory: vec![0.0; 40], edges: vec![] };
        let record = |release: &Release| ledger.record(release, carried).map(|_| ());
        common::with_release(round, &[f64::from(round); 40], Some(&budget()), !fresh, record)
    };
    // Study 2 for two rounds, study 1 to its end, study 2 for one round more.
    let play = |disk: &Fragile| -> Result<(), LedgerError> {
        let (mut ledger, resumed) = enter_wide(disk.clone())?;
        let mut last = resumed.last;
        while last.as_ref().is_none_or(|l| l.round < 2) {
            wide_step(&mut ledger, &last)?;
            drop(ledger);
            (ledger, Resumed { last, .. }) = enter_wide(disk.clone())?;
        }
        drop(ledger);
        run(disk, 0.0, &mut Sent::new())?;
        let (mut ledger, resumed) = enter_wide(disk.clone())?;
        if resumed.last.as_ref().is_some_and(|l| l.round < 3) {
            wide_step(&mut ledger, &resumed.last)?;
        }
        Ok(())
    };
    let whole = Fragile::default();
    play(&whole).unwrap();
    let lengths = whole.writes.borrow().clone();
    for (write, length) in lengths.iter().enumerate() {
        let step = if *length > 10_000 { 9973 } else { 7 };
        for kept in (0..=*length).step_by(step) {
            let disk = Fragile { dies: Some((write, kept)), ..Fragile::default() };
            play(&disk).unwrap_err();
            let after = Fragile { dies: None, ..disk };
            let charged = |disk: &Fragile| Contents::read(&mut disk.clone()).unwrap().map_or(vec![], |c| c.runs);
            let last_write = write + 1 == lengths.len();
            let torn = Contents::read(&mut after.clone()).unwrap().is_some_and(|c| c.torn);
            if last_write && torn {
                // The third round of study 2 was truncated: study 2 is charged.
                assert!((charged(&after)[0].spent.rho.get() - 3.0 * RHO).abs() < 1e-9, "byte {kept}");
            }
            play(&after).unwrap_or_else(|e| panic!("write {write}, byte {kept}: {e}"));
            let runs = charged(&after);
            assert_eq!((runs[0].round, runs[1].round), (3, 6));
            for run in runs {
                assert!(run.spent.rho.get() >= RHO * f64::from(run.fresh) - 1e-12, "write {write}, byte {kept}");
            }
        }
    }
}

#[test]
fn a_rehearsal_leaves_no_bound() {
    let disk = Fragile::default();
    let unsafe_begin = Begin { protected: false, ..begin(1) };
    let (mut ledger, _) =
        Ledger::enter(disk.clone(), identity(), chain(), LIMITS, unsafe_begin, Some(budget())).unwrap();
    assert_eq!(ledger.contents().spent(), Some(Spent::ZERO));
    step(&mut ledger, &mut None, 0.0).unwrap();
    assert_eq!(ledger.contents().spent(), None);
}

/// A last record that is valid in itself but follows another one, as in a ledger put together from two.
#[test]
fn a_last_record_of_another_chain_is_not_accepted() {
    let [one, other] = [0.0, 1e-3].map(|noise| {
        let disk = Fragile::default();
        run(&disk, noise, &mut Sent::new()).unwrap();
        disk
    });
    let lengths = one.writes.borrow().clone();
    assert_eq!(lengths, *other.writes.borrow());
    let records: usize = lengths[0] + lengths[3..].iter().sum::<usize>();
    let last = records - lengths[lengths.len() - 1]..records;
    let foreign = other.content.borrow().0[last.clone()].to_vec();
    one.content.borrow_mut().0[last].copy_from_slice(&foreign);
    assert!(matches!(Contents::read(&mut one.clone()), Err(LedgerError::Shortened { found: 7, known: 8, .. })));
    // With a mark of the record before, as after a loss of power, it is one that was cut off.
    let cut = Fragile { dies: Some((lengths.len() - 1, 0)), ..Fragile::default() };
    run(&cut, 0.0, &mut Sent::new()).unwrap_err();
    cut.content.borrow_mut().0 = one.content.borrow().0.clone();
    let contents = Contents::read(&mut cut.clone()).unwrap().unwrap();
    assert!(contents.torn && contents.runs[0].round == 5);
    assert!((contents.spent().unwrap().rho.get() - 6.0 * RHO).abs() < 1e-9, "its round is charged");
}

/// An anchor that is first named for a ledger with a past says nothing about that past, however often the peer starts: a restored folder must not make itself current.
#[test]
fn an_anchor_vouches_only_after_a_round_from_the_records() {
    let disk = Fragile::default();
    let (mut ledger, mut resumed) = enter(disk.clone(), 1).unwrap();
    step(&mut ledger, &mut resumed.last, 0.0).unwrap();
    drop(ledger);
    let disk = Fragile { anchored: true, ..disk };
    for _ in 0..3 {
        let (mut ledger, _) = enter(disk.clone(), 1).unwrap();
        assert!(!ledger.is_anchored());
        ledger.drop_edge(1).unwrap();
    }
    assert!(disk.marks.borrow()[2].0.is_empty());
    // A round from the records is made only when all neighbours of the last state have answered.
    let (mut ledger, mut resumed) = enter(disk.clone(), 1).unwrap();
    step(&mut ledger, &mut resumed.last, 0.0).unwrap();
    drop(ledger);
    assert!(enter(disk, 1).unwrap().0.is_anchored());
}
