//! Masks: both ends draw the same integers, sums cancel, what is left has the covariance of the proof, and an adversary with the keys of some
//! clients, or of all but one, learns what the two budgets say.
//!
//! Statistical checks compare with 6 standard errors, a significance of about 2e-9 each. Every planted bug must fail the check that it is
//! for.

mod common;

use common::Client;
use undertone_core::algorithm::Run;
use undertone_core::cholesky::Cholesky;
use undertone_core::client::{Cost, LARGEST_VALUE, Protection, RoundError, Rules, State};
use undertone_core::graph::Graph;
use undertone_core::identity::{Identity, PublicId};
use undertone_core::names::Names;
use undertone_core::privacy::{
    Clip, MaskedLattice, Masking, Masks, Noise, OwnNoise, PairKeys, Rho, Sensitivity, Stream, Trust,
};
use undertone_core::records::Scratch;
use undertone_core::study::{NoiseKind, Study};

const STUDY: [u8; 32] = [9; 32];

fn identities(count: usize) -> Vec<Identity> {
    (0..count).map(|k| Identity::from_secret(&[k as u8 + 1; 32])).collect()
}

/// The secrets of one client with all others.
fn keys(identities: &[Identity], me: usize, study: &[u8; 32]) -> Vec<[u8; 32]> {
    identities.iter().map(|other| *identities[me].mask_key(&other.id(), study)).collect()
}

fn masks(identities: &[Identity], me: usize) -> Masks {
    Masks::Shared(PairKeys::new(me, keys(identities, me, &STUDY).into_iter().map(Into::into).collect()))
}

/// The mask of a pair of clients in a round, as anybody with their secret draws it.
fn single(key: [u8; 32], lattice: &MaskedLattice, round: u32, out: &mut [i128]) {
    Masks::Shared(PairKeys::new(0, vec![[0; 32].into(), key.into()]))
        .round(2, 0, round, out.len())
        .sum(0, lattice, out);
}

fn masking(clients: usize, colluders: usize, theta: f64) -> Masking {
    let reference = Sensitivity::of_clipped_mean(Clip::new(1.0).unwrap(), 50);
    Masking { trust: Trust::new(clients, colluders, Some(theta)).unwrap(), reference }
}

fn phi() -> Rho {
    Rho::new(0.02).unwrap()
}

#[test]
fn a_secret_belongs_to_a_pair_and_a_study() {
    let all = identities(3);
    let key = |a: usize, b: usize, study: u8| all[a].mask_key(&all[b].id(), &[study; 32]);
    assert_eq!(key(0, 1, 9), key(1, 0, 9), "both ends compute the same");
    let others = [key(0, 2, 9), key(1, 2, 9), key(0, 1, 8)];
    assert!(others.iter().all(|other| *other != key(0, 1, 9)));
}

#[test]
fn masks_cancel_exactly_in_the_sum_over_all_clients() {
    let all = identities(7);
    let lattice = MaskedLattice::new(&masking(7, 2, 0.8), phi()).unwrap();
    let sum = |k: usize, round: u32| {
        let mut sum = vec![0; 5];
        masks(&all, k).round(7, 0, round, 5).sum(k, &lattice, &mut sum);
        sum
    };
    for round in [1, 2, 77] {
        let sums: Vec<Vec<i128>> = (0..7).map(|k| sum(k, round)).collect();
        for p in 0..5 {
            assert_eq!(sums.iter().map(|sum| sum[p]).sum::<i128>(), 0, "round {round}, coordinate {p}");
        }
        assert!(sums.iter().flatten().all(|v| v.unsigned_abs() > 1000), "no mask is nothing");
    }
    assert_ne!(sum(0, 1), sum(0, 2), "every round has its own");
    // The joint law of simulations: the same up to rounding.
    let joint = Masks::Seeded(4).round(7, 0, 1, 5);
    let mut total = vec![0.0; 5];
    for k in 0..7 {
        let mut values = vec![0.0; 5];
        joint.sum_normal(k, &lattice, &mut values);
        total.iter_mut().zip(values).for_each(|(total, value)| *total += value);
    }
    assert!(total.iter().all(|v| v.abs() < 1e-12 * lattice.mask() as f64 * lattice.step() * 7.0), "{total:?}");
}

/// What goes wrong in a run, if anything.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Planted {
    Nothing,
    /// Clients 0 and 1 leave out the mask between them.
    NoMaskOfAPair,
    /// The masks of the first of two rounds are used in the second too.
    ReusedMask,
    /// Other clients draw less own noise than the floor.
    BelowTheFloor,
    /// Client 0 adds its mask with client 1 as client 1 does, with the wrong sign.
    WrongSign,
    /// Own noise is calibrated for theta = 0.95, masks for the study's.
    ThetaIgnored,
    /// Noise is calibrated for one honest client more than there are.
    OneHonestTooMany,
}

const CLIENTS: usize = 5;
const COLLUDERS: usize = 1;
const HONEST: usize = CLIENTS - COLLUDERS;
const SAMPLES: u32 = 40_000;

/// Lattice and own noise of a run with a bug.
fn calibrated(planted: Planted, sensitivity: Sensitivity) -> (MaskedLattice, OwnNoise) {
    let right = MaskedLattice::new(&masking(CLIENTS, COLLUDERS, 0.6), phi()).unwrap();
    let own = |lattice: &MaskedLattice| lattice.own(sensitivity, 1, phi()).unwrap();
    match planted {
        Planted::OneHonestTooMany => {
            let wrong = MaskedLattice::new(&masking(CLIENTS, COLLUDERS - 1, 0.6), phi()).unwrap();
            (wrong, own(&wrong))
        }
        Planted::ThetaIgnored => {
            let wrong = MaskedLattice::new(&masking(CLIENTS, COLLUDERS, 0.95), phi()).unwrap();
            let scale = (wrong.floor() as f64 * wrong.step() / right.step()) as u64;
            (right, OwnNoise { scale, ..own(&right) })
        }
        _ => (right, own(&right)),
    }
}

/// The noise that an adversary with the keys of the last client sees at the others, in units of g: one row for every sample, with two rounds in
/// it.
fn observed(planted: Planted) -> (Vec<[f64; 2 * HONEST]>, MaskedLattice, OwnNoise) {
    let all = identities(CLIENTS);
    let sensitivity = Sensitivity::of_clipped_mean(Clip::new(1.0).unwrap(), 50);
    let (lattice, own) = calibrated(planted, sensitivity);
    let noise = Noise::secure_with_test_key([3; 32]);
    let sources: Vec<Masks> = (0..HONEST).map(|k| masks(&all, k)).collect();
    let secrets: Vec<Vec<[u8; 32]>> = (0..HONEST).map(|k| keys(&all, k, &STUDY)).collect();
    let one = |(k, l): (usize, usize), round| {
        let mut mask = [0];
        single(secrets[k][l], &lattice, round, &mut mask);
        mask[0] as f64
    };
    let rows = (0..SAMPLES).map(|sample| {
        let mut row = [0.0; 2 * HONEST];
        for second in 0..2 {
            let round = 2 * sample + second + 1;
            // Which round's masks are used.
            let drawn = if planted == Planted::ReusedMask { 2 * sample + 1 } else { round };
            for k in 0..HONEST {
                let stream = Stream { trial: 0, client: k as u32, round };
                let scale = if planted == Planted::BelowTheFloor && k > 0 { own.scale / 2 } else { own.scale };
                let own = OwnNoise { scale, ..own };
                let mut released = [0.0];
                let masks = sources[k].round(CLIENTS, 0, drawn, 1);
                noise.release_masked(stream, (&lattice, &own), &masks, &[0.0], &mut released).unwrap();
                let mut seen = released[0] / lattice.step() - one((k, CLIENTS - 1), drawn);
                let pair = one((0, 1), drawn);
                match planted {
                    Planted::NoMaskOfAPair if k == 0 => seen -= pair,
                    Planted::NoMaskOfAPair if k == 1 => seen += pair,
                    Planted::WrongSign if k == 0 => seen -= 2.0 * pair,
                    _ => {}
                }
                row[second as usize * HONEST + k] = seen;
            }
        }
        row
    });
    (rows.collect(), lattice, own)
}

/// By how many standard errors the covariance of what is seen differs most from C, in each round, and from zero between rounds.
fn off_by(rows: &[[f64; 2 * HONEST]], lattice: &MaskedLattice, own: &OwnNoise) -> f64 {
    let (mask, scale) = ((lattice.mask() as f64).powi(2), (own.scale as f64).powi(2));
    let entry = |i: usize, j: usize| if i == j { scale + mask * (HONEST as f64 - 1.0) } else { -mask };
    let root = Cholesky::new((0..HONEST * HONEST).map(|at| entry(at / HONEST, at % HONEST)).collect(), HONEST, 0.0);
    // L^-1 x has the covariance I.
    let whiten = |x: &[f64]| {
        let mut z = [0.0; HONEST];
        for i in 0..HONEST {
            let row = root.row(i);
            let known: f64 = (0..i).map(|j| row[j] * z[j]).sum();
            z[i] = (x[i] - known) / row[i];
        }
        z
    };
    let mut sums = [[0.0; 2 * HONEST]; 2 * HONEST];
    for row in rows {
        let z: Vec<f64> = [whiten(&row[..HONEST]), whiten(&row[HONEST..])].concat();
        for i in 0..2 * HONEST {
            (0..2 * HONEST).for_each(|j| sums[i][j] += z[i] * z[j]);
        }
    }
    let count = rows.len() as f64;
    let mut worst = 0.0f64;
    for (i, row) in sums.iter().enumerate() {
        for (j, sum) in row[..=i].iter().enumerate() {
            let (mean, error) = if i == j { (1.0, (2.0 / count).sqrt()) } else { (0.0, (1.0 / count).sqrt()) };
            worst = worst.max((sum / count - mean).abs() / error);
        }
    }
    worst
}

/// What the best adversary learns about client 0 from both rounds, who knows the true covariance: the mean log-likelihood ratio
/// of a shift by `moved` in each round, the same way or to and fro, from the covariance that was measured.
fn learned(rows: &[[f64; 2 * HONEST]], moved: f64) -> f64 {
    const N: usize = 2 * HONEST;
    let mut covariance = vec![0.0; N * N];
    for row in rows {
        for i in 0..N {
            (0..N).for_each(|j| covariance[i * N + j] += row[i] * row[j] / rows.len() as f64);
        }
    }
    let root = Cholesky::new(covariance, N, 0.0);
    let ratio = |second: f64| {
        let mut z = [0.0; N];
        for i in 0..N {
            let shift = [moved, moved * second][i / HONEST] * f64::from(i % HONEST == 0);
            let row = root.row(i);
            z[i] = (shift - (0..i).map(|j| row[j] * z[j]).sum::<f64>()) / row[i];
        }
        z.iter().map(|z| z * z).sum::<f64>() / 2.0
    };
    ratio(1.0).max(ratio(-1.0))
}

/// A shift in both rounds costs 2 phi. An estimate from n samples has the relative standard error sqrt(2/n).
#[test]
fn what_colluders_see_has_the_covariance_of_the_proof_and_reveals_what_was_charged() {
    let moved =
        |lattice: &MaskedLattice| Sensitivity::of_clipped_mean(Clip::new(1.0).unwrap(), 50).get() / lattice.step();
    let error = (2.0 / f64::from(SAMPLES)).sqrt();
    let (rows, lattice, own) = observed(Planted::Nothing);
    let off = off_by(&rows, &lattice, &own);
    assert!(off < 6.0, "off by {off} standard errors");
    let found = learned(&rows, moved(&lattice)) / (2.0 * phi().get());
    assert!((found - 1.0).abs() < 6.0 * error, "{found} of what was charged");
    for planted in [
        Planted::NoMaskOfAPair,
        Planted::ReusedMask,
        Planted::BelowTheFloor,
        Planted::ThetaIgnored,
        Planted::OneHonestTooMany,
    ] {
        let (rows, lattice, _) = observed(planted);
        let found = learned(&rows, moved(&lattice)) / (2.0 * phi().get());
        assert!(found > 1.0 + 6.0 * error, "{planted:?} was not detected: {found}");
    }
    // A wrong sign ruins the model, not the privacy: the covariance shows it.
    for planted in [Planted::WrongSign, Planted::NoMaskOfAPair, Planted::ReusedMask, Planted::BelowTheFloor] {
        let (rows, lattice, own) = observed(planted);
        let off = off_by(&rows, &lattice, &own);
        assert!(off > 6.0, "{planted:?} was not detected: {off}");
    }
}

fn study(algorithm: &str) -> Study {
    let text = format!(
        "rounds = 9\n[problem]\nloss = \"absolute\"\n[data]\nsource = \"synthetic\"\nclients = 3\nrecords = 4\nfeatures = 2\n\
         [graph]\nkind = \"ring\"\n[privacy]\nepsilon = 6\ndelta = 1e-5\nclip = 0.8\ntau = 0.9\ncolluders = 1\ntheta = 0.7\n\
         [algorithm]\n{algorithm}\n"
    );
    Study::parse(&text, "audit").unwrap()
}

/// Client 0 with a target far on either side, so that one gradient has full length in one direction or in the other.
fn clients(clip: Clip, target: f64) -> Vec<Client> {
    let rows = |first: f64| {
        vec![(vec![0.6, -0.8], first), (vec![1.0, 0.5], 0.3), (vec![-0.4, 0.9], -0.1), (vec![0.2, 0.2], 0.4)]
    };
    [target, 0.1, 0.5].map(|first| Client::new(&rows(first), Some(clip))).into()
}

/// The mean log-likelihood ratios of an adversary with the keys of client 2, and with those of clients 1 and 2, over whole runs; and the two
/// budgets.
fn audit(study: &Study, runs: u32) -> [(f64, f64); 2] {
    let privacy = study.privacy().unwrap();
    let masking = study.masking(3, || unreachable!("the study says it")).unwrap();
    let gradient = Sensitivity::of_clipped_mean(privacy.clip(), 4);
    let budget = study.client_budget("1").unwrap().masked(masking).of_records(gradient, 2);
    let problem = study.public_problem().unwrap();
    let graph = Graph::from_edges(&Names::numbered(3), &[(0, 1), (1, 2), (2, 0)]).unwrap();
    let (truth, other) = (clients(privacy.clip(), 1e6), clients(privacy.clip(), -1e6));
    let run = Run { rounds: study.rounds(), graph: &graph, problem: &problem, robust: None };
    let rules = Rules { algorithm: study.algorithm(), largest: LARGEST_VALUE };
    let (mut learned, width) = ([0.0; 2], study.algorithm().memory());
    for trial in 0..runs {
        // A run of its own for every trial: other secrets, as another study would have.
        let secret = |k: usize, l: usize| {
            let mut key = [(1 << k | 1 << l) as u8; 32];
            key[..4].copy_from_slice(&trial.to_le_bytes());
            key
        };
        let own_keys = |k: usize| PairKeys::new(k, (0..3).map(|l| secret(k, l).into()).collect());
        let sources: Vec<Masks> = (0..3).map(|k| Masks::Shared(own_keys(k))).collect();
        let noise = Noise::secure_with_test_key([7; 32]);
        let (mut released, mut memory) = (vec![vec![0.0; 2]; 3], vec![vec![0.0; 2 * width]; 3]);
        for number in 1..=study.rounds() {
            let points = released.concat();
            let step = |k: usize, client: &Client, noised: bool| {
                let drawn = sources[k].round(3, 0, number, 2);
                let protection = match noised {
                    true => Protection::On { budget: &budget, noise: &noise, masks: Some(&drawn), trial },
                    false => Protection::Off,
                };
                let (mut memory, mut out) = (memory[k].clone(), vec![0.0; 2]);
                let state = State { memory: &mut memory, w: &mut [0.0; 2], released: &mut out };
                let round = run.round(number, k, None).with_points(&released[k], &points);
                let release =
                    rules.round(&round, client.records(), protection, state, &mut Scratch::default()).unwrap();
                if noised && rules.algorithm.touches_records(number, run.rounds) {
                    assert_eq!(release.cost(), Cost::Noised(budget.cost(number)));
                }
                (memory, out)
            };
            let after: Vec<(Vec<f64>, Vec<f64>)> = (0..3).map(|k| step(k, &truth[k], true)).collect();
            if rules.algorithm.touches_records(number, run.rounds) {
                let (lattice, own) = budget.masked_noise(number, gradient, 2).unwrap();
                // The noise on the gradient under either hypothesis, without the masks that the adversary knows.
                let noise_of = |k: usize, client: &Client, known: &[(usize, f64)]| -> Vec<f64> {
                    let clean = step(k, client, false).1;
                    let gain = rules.algorithm.gain(&run.round(number, k, None)).unwrap();
                    let mut seen: Vec<f64> = after[k]
                        .1
                        .iter()
                        .zip(clean)
                        .map(|(noised, clean)| (noised - clean) / gain / lattice.step())
                        .collect();
                    for (other, sign) in known {
                        let mut mask = vec![0; 2];
                        single(secret(k, *other), &lattice, number, &mut mask);
                        seen.iter_mut().zip(mask).for_each(|(seen, mask)| *seen -= sign * mask as f64);
                    }
                    seen
                };
                let (s, c) = ((own.scale as f64).powi(2), (lattice.mask() as f64).powi(2));
                // With client 2's keys: clients 0 and 1 share one mask that is not known.
                let (a, b) = (noise_of(0, &truth[0], &[(2, 1.0)]), noise_of(0, &other[0], &[(2, 1.0)]));
                let with = noise_of(1, &truth[1], &[(2, 1.0)]);
                let determinant = (s + c) * (s + c) - c * c;
                let square = |x: f64, y: f64| ((s + c) * (x * x + y * y) + 2.0 * c * x * y) / determinant;
                let apart = |p: usize| (square(b[p], with[p]) - square(a[p], with[p])) / 2.0;
                learned[0] += (0..2).map(apart).sum::<f64>();
                // With all others' keys: own noise is left.
                let [a, b] = [&truth[0], &other[0]].map(|client| noise_of(0, client, &[(1, 1.0), (2, 1.0)]));
                learned[1] += (0..2).map(|p| (b[p] * b[p] - a[p] * a[p]) / (2.0 * s)).sum::<f64>();
            }
            (memory, released) = after.into_iter().unzip();
        }
    }
    let total = budget.promised();
    [(learned[0] / f64::from(runs), total.rho.get()), (learned[1] / f64::from(runs), total.alone.get())]
}

/// A sum of log-likelihood ratios of cost rho has mean rho and variance 2 rho.
#[test]
fn whole_runs_reveal_what_both_budgets_say() {
    const RUNS: u32 = 1500;
    for algorithm in [
        "name = \"free-rounds\"\ndata_rounds = 4\neta = 0.5\ndecay = \"sqrt\"\nmomentum = 0.5",
        "name = \"zcdp-nfl\"\nrho = 0.4\neta = 0.5\naverage = 0.5",
        "name = \"zcdp-grad-nfl\"\neta = 0.5",
    ] {
        let found = audit(&study(algorithm), RUNS);
        for (learned, charged) in found {
            let error = (2.0 * charged / f64::from(RUNS)).sqrt();
            assert!((learned - charged).abs() < 6.0 * error, "{algorithm}: {learned} against {charged}");
        }
        // The two budgets differ by more than the error: what all others learn is not what was charged under trust.
        assert!(
            (found[1].0 - found[0].1) > 6.0 * (2.0 * found[0].1 / f64::from(RUNS)).sqrt(),
            "{algorithm}: {found:?}"
        );
    }
}

#[test]
fn masks_come_exactly_with_a_budget_for_them() {
    let study = study("name = \"zcdp-grad-nfl\"\neta = 0.5");
    let masking = study.masking(3, || unreachable!()).unwrap();
    let plain = study.client_budget("1").unwrap();
    let masked = plain.clone().masked(masking);
    let all = identities(3);
    let (own, foreign) = (masks(&all, 0).round(3, 0, 1, 2), masks(&all, 1).round(3, 0, 1, 2));
    let seeded = Masks::Seeded(1).round(3, 0, 1, 2);
    let wrong = [masks(&all, 0).round(3, 0, 2, 2), masks(&all, 0).round(2, 0, 1, 2)];
    let problem = study.public_problem().unwrap();
    let graph = Graph::from_edges(&Names::numbered(3), &[(0, 1), (1, 2)]).unwrap();
    let run = Run { rounds: 9, graph: &graph, problem: &problem, robust: None };
    let records = clients(study.privacy().unwrap().clip(), 1.0);
    let release = |budget, noise: &Noise, masks| {
        let mut out = [0.0; 2];
        let state = State { memory: &mut [], w: &mut [0.0; 2], released: &mut out };
        let protection = Protection::On { budget, noise, masks, trial: 0 };
        let round = run.round(1, 0, None).with_points(&[0.0; 2], &[0.0; 6]);
        let rules = Rules { algorithm: study.algorithm(), largest: LARGEST_VALUE };
        rules
            .round(&round, records[0].records(), protection, state, &mut Scratch::default())
            .map(|release| release.cost())
    };
    let (safe, fast) = (Noise::secure_with_test_key([1; 32]), Noise::fast(1));
    assert!(matches!(release(&masked, &safe, Some(&own)), Ok(Cost::Noised(_))));
    assert!(matches!(release(&masked, &fast, Some(&seeded)), Ok(Cost::Rehearsed(_))));
    assert_eq!(release(&masked, &safe, None), Err(RoundError::Masks), "own noise alone would not be enough");
    assert_eq!(release(&plain, &safe, Some(&own)), Err(RoundError::Masks));
    assert!(matches!(release(&masked, &safe, Some(&foreign)), Err(RoundError::Noise(_))), "another client's masks");
    assert!(matches!(release(&masked, &fast, Some(&own)), Err(RoundError::Noise(_))), "unsafe noise under real masks");
    // Masks of another round or of fewer clients, and open ones under safe noise.
    for wrong in &wrong {
        assert!(matches!(release(&masked, &safe, Some(wrong)), Err(RoundError::Noise(_))));
    }
    assert!(
        matches!(release(&masked, &safe, Some(&seeded)), Ok(Cost::Rehearsed(_))),
        "masks that are not secret protect nothing"
    );
}

/// Whatever the number of records and the own budget of a client, a study states no less than it spends.
#[test]
fn the_stated_exposure_covers_every_client() {
    let study = study("name = \"free-rounds\"\ndata_rounds = 4\neta = 0.5");
    let stated = study.exposure(3).unwrap().unwrap();
    let privacy = study.privacy().unwrap();
    let masking = study.masking(3, || unreachable!("the study says it")).unwrap();
    let mut largest = 0.0f64;
    for records in [1, 2, 3, 4, 5, 40] {
        let gradient = Sensitivity::of_clipped_mean(privacy.clip(), records);
        for own in [0.2, 1.0] {
            let own = Rho::new(own * privacy.schedule().phi(1).get()).unwrap();
            let budget = privacy.client_budget(Some(own)).masked(masking).of_records(gradient, 2);
            let spent = budget.promised();
            assert!(spent.rho.get() <= stated.rho.get() && spent.alone.get() <= stated.alone.get(), "{records}");
            largest = largest.max(spent.alone.get());
        }
    }
    assert!(largest > 0.999 * stated.alone.get(), "the bound is reached: {largest} of {}", stated.alone.get());
}

/// Both rhos of every kind of record come back from its bytes, each in its place.
#[test]
fn records_keep_both_costs_apart() {
    use undertone_core::ledger::record::find;
    use undertone_core::ledger::{Begin, Record, RoundRecord};
    use undertone_core::privacy::Spent;
    let spent = |rho: f64, alone: f64| Spent { rho: Rho::new(rho).unwrap(), alone: Rho::new(alone).unwrap() };
    let begin = Begin {
        study: [1; 32],
        name: "n".into(),
        rounds: 3,
        features: 1,
        degree: 0,
        memory: 0,
        clients: 7,
        colluders: 2,
        total: spent(0.1, 0.2),
        epsilon: 1.0,
        delta: 1e-5,
        next: spent(0.3, 0.4),
        protected: true,
        data: [2; 32],
        time: 5,
    };
    let round = RoundRecord {
        run: 0,
        round: 1,
        cost: Cost::Noised(spent(0.5, 0.6)),
        next: spent(0.7, 0.8),
        prior: [3; 32],
        released: vec![1.5],
        memory: vec![],
        edges: vec![],
    };
    for record in
        [Record::Begin(begin), Record::Round(round), Record::Charge { run: 0, round: 2, cost: spent(0.9, 1.1) }]
    {
        let (bytes, _) = record.encode(&[4; 32]);
        assert_eq!(find(&bytes).and_then(|found| found.record), Some(record));
    }
}

#[test]
fn a_study_says_what_is_assumed_and_what_cannot_be() {
    let base = |privacy: &str, algorithm: &str| {
        Study::parse(
            &format!(
                "rounds = 9\n[problem]\nloss = \"squared\"\nregularizer = \"l2\"\nlambda = 0.1\n\
                 [data]\nsource = \"synthetic\"\nclients = 6\nrecords = 4\nfeatures = 2\n\
                 [graph]\nkind = \"ring\"\n[privacy]\nepsilon = 1\ndelta = 1e-5\nclip = 0.8\n{privacy}\n[algorithm]\n{algorithm}\n"
            ),
            "t.toml",
        )
    };
    const GRAD: &str = "name = \"zcdp-grad-nfl\"\neta = 0.5";
    let refused = |privacy: &str, algorithm: &str| base(privacy, algorithm).unwrap_err().to_string();
    assert!(refused("colluders = 5", GRAD).contains("privacy.colluders = 5 of 6 clients leaves no two"));
    assert!(refused("colluders = 5", GRAD).contains("t.toml:"), "the line is named");
    assert!(refused("theta = 0.5", GRAD).contains("give privacy.colluders"));
    assert!(refused("colluders = 1\ntheta = 0.2", GRAD).contains("privacy.theta = 0.2 is not possible with 5"));
    assert!(refused("colluders = 1\ntheta = 0.999", GRAD).contains("at most 0.995"));
    assert!(refused("colluders = 1", "name = \"p-admm\"\nrho = 1").contains("masks would not cancel"));
    assert!(
        refused("colluders = 1\naccountant = \"classic\"", GRAD).contains("privacy.colluders is accounted for by rho")
    );
    assert!(refused("colluders = 1\n[client.2]\neta = 0.1", GRAD).contains("client.2.eta weighs"));
    let (plain, one, two) =
        (base("", GRAD).unwrap(), base("colluders = 1", GRAD).unwrap(), base("colluders = 2", GRAD).unwrap());
    assert_eq!(plain.digest().differences(one.digest()), ["privacy"], "parties who do not trust alike do not start");
    assert_eq!(one.digest().differences(two.digest()), ["privacy"]);
    assert_eq!(Study::parse(&one.to_toml(), "again").unwrap().digest(), one.digest());
    assert_eq!(one.privacy().unwrap().noise(), NoiseKind::Fast);
    // Both numbers, and more trust means less own noise.
    let alone = |study: &Study| study.exposure(6).unwrap().unwrap().alone.get();
    let rho = plain.exposure(6).unwrap().unwrap();
    assert_eq!(rho.rho, rho.alone);
    assert!(alone(&one) > alone(&two) && alone(&two) > rho.rho.get());
}

#[test]
fn every_coordinate_has_a_mask_of_its_own() {
    let all = identities(2);
    let lattice = MaskedLattice::new(&masking(5, 1, 0.6), phi()).unwrap();
    let mut mask = vec![0; 50];
    single(keys(&all, 0, &STUDY)[1], &lattice, 1, &mut mask);
    let different: std::collections::HashSet<i128> = mask.iter().copied().collect();
    assert_eq!(different.len(), 50);
}

/// X25519 of both keys, the study and both ids, hashed: computed independently. Nobody without one of the secrets can compute it.
#[test]
fn a_secret_is_that_of_x25519() {
    let all = identities(2);
    let expected = "483ff5483c59e05cc9f37b89516ac857c4adc834d434a42a7c6069b113e8acd5";
    assert_eq!(hex::encode(&all[0].mask_key(&all[1].id(), &STUDY)[..]), expected);
    assert_eq!(hex::encode(&all[1].mask_key(&all[0].id(), &STUDY)[..]), expected);
}

/// With such an id everybody would share the same secret.
#[test]
fn ids_of_small_order_are_refused() {
    let mut neutral = [0; 32];
    neutral[0] = 1;
    // y = 0 has order 4, y = 1 is the neutral point.
    assert!(PublicId::from_bytes([0; 32]).is_none() && PublicId::from_bytes(neutral).is_none());
    assert!(PublicId::from_bytes(*identities(1)[0].id().as_bytes()).is_some());
}
