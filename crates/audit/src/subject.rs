//! What is audited: the clients of a study with records made for the attack, and one run of it through the code that peers and simulations run.

use rand::RngExt;
use rand::distr::Distribution;
use undertone_core::algorithm::{Robust, Run};
use undertone_core::client::{Cost, LARGEST_VALUE, Protection, RoundError, Rules, State};
use undertone_core::graph::Graph;
use undertone_core::names::Names;
use undertone_core::normal::Normal;
use undertone_core::privacy::{
    ClientBudget, Clip, Delta, MaskedLattice, Masking, Masks, Noise, RoundMasks, Sensitivity, Stream,
};
use undertone_core::problem::Problem;
use undertone_core::records::{Dataset, RecordLayout, Scratch};
use undertone_core::study::Study;

use crate::AuditError;

/// Records with full gradients in opposite directions: x = a e_p and y = +-b, one for each coordinate.
///
/// The gradient of record p has the length of the clip and lies on axis p, so every coordinate of every client is a worst-case pair of
/// neighbouring data sets of its own, told apart by one bit.
#[derive(Debug, Clone, Copy)]
pub struct Canary {
    /// The length of x.
    pub reach: f64,
    /// The size of y.
    pub target: f64,
}

impl Canary {
    /// For the study's loss and clip.
    fn of(study: &Study) -> Self {
        let (loss, clip) = (study.spec().loss, study.privacy().map_or(1.0, |privacy| privacy.clip().get()));
        if loss.is_classification() {
            // The slopes of both labels reach the clip near w = 0 only; this length leaves them most room.
            let room = |z: f64| loss.slope(z, 1.0).abs().min(loss.slope(-z, 1.0).abs());
            let reach = [1.0, 1.5, 2.5, 4.0, 6.0].into_iter().find(|a| room(0.25) * a >= 1.0).unwrap_or(6.0);
            return Self { reach: clip * reach, target: 1.0 };
        }
        // Far from every model, so that the sign of the residual is that of the target.
        let target = 1e9;
        let least = loss.slope(0.0, target).abs().min(loss.slope(0.0, -target).abs());
        Self { reach: clip * (1.0 / least).max(1.0) * (1.0 + 1e-9), target }
    }
}

/// A study, the part of its clients that is attacked, and what is known about all of them.
pub struct Subject {
    pub study: Study,
    pub graph: Graph,
    pub robust: Option<Robust>,
    pub problem: Problem,
    pub names: Names,
    pub budgets: Vec<ClientBudget>,
    pub noise: Noise,
    pub masks: Option<Masks>,
    pub masking: Option<Masking>,
    pub canary: Canary,
    pub clip: Clip,
    /// How many coordinates the attack has. The study's own number, or more where masks are drawn: their streams take longer to start than to read.
    pub features: usize,
    /// Those whose budget is that of the first of them; with masks it is one client.
    pub attacked: Vec<usize>,
    /// 2 c1/D of an attacked client: how far its bit moves a gradient.
    pub moved: f64,
}

/// The bits, and what was seen of each: sums over data rounds of what the adversary knows, in units of its noise.
#[derive(Default)]
pub struct Seen {
    /// For each attacked client and coordinate.
    pub bits: Vec<bool>,
    /// The log-likelihood ratio of the bit, in units of its claimed standard deviation: N(+-signal, 1) by the claim.
    pub scores: Vec<f64>,
    /// Its claimed mean, mu/2 where the record has the full sensitivity in every round.
    pub signals: Vec<f64>,
    /// Residual noise in units of the claimed, of single rounds.
    pub noise: Vec<f64>,
}

/// Adds the mask of an honest client with a colluder in a round, in steps.
pub(crate) type KnownMask<'a> = dyn Fn(u32, usize, usize, &MaskedLattice, &mut [i128]) + 'a;

/// How many residuals are kept.
const KEPT: usize = 1 << 18;

impl Seen {
    /// Adds another run.
    pub fn append(&mut self, other: Self) {
        self.bits.extend(other.bits);
        self.scores.extend(other.scores);
        self.signals.extend(other.signals);
        if self.noise.len() < KEPT {
            self.noise.extend(other.noise);
        }
    }
}

impl Subject {
    /// The same with records of which `reach` is the feature and `target` the size of the target, as peers read them from files.
    pub(crate) fn with_canary(self, reach: f64, target: f64) -> Self {
        Self { canary: Canary { reach, target }, ..self }
    }

    /// With the clients of `class`: those whose own phi(1) in the study is that of the first one; `names` are all clients of the study.
    pub fn new(study: &Study, names: &Names, class: &[usize]) -> Result<Self, AuditError> {
        let Some(privacy) = study.privacy() else { return Err(AuditError::NoPrivacy) };
        let clients = names.len();
        let graph = study.build_graph(names, 0)?;
        let masked = privacy.colluders().is_some();
        let features = if masked { study.features().max(48) } else { study.features() };
        let masking = study.masking(clients, || features as f64)?;
        let layout = layout(study, features, features);
        let budget = |k: usize| {
            let budget = study.client_budget(&names.get(k)).expect("a study with privacy has budgets");
            budget.masked(masking)
        };
        let masks = study.simulated_masks().map_err(|e| AuditError::Noise(e.to_string()))?;
        Ok(Self {
            robust: study.robust(&graph),
            graph,
            problem: study.problem(|| 0.0),
            names: names.clone(),
            budgets: (0..clients).map(budget).collect(),
            noise: study.noise().expect("a study with privacy has noise"),
            canary: Canary::of(study),
            clip: privacy.clip(),
            features,
            attacked: if masks.is_some() { class[..1].to_vec() } else { class.to_vec() },
            masks,
            masking,
            moved: 2.0 * privacy.clip().get() / layout.divisor,
            study: study.clone(),
        })
    }

    /// The rho that an attacked client may spend.
    pub fn rho(&self) -> f64 {
        let budget = &self.budgets[self.attacked[0]];
        (1..=self.study.rounds()).map(|n| budget.phi(n).get()).sum()
    }

    /// The delta of the study.
    pub fn delta(&self) -> Delta {
        self.study.privacy().expect("checked when made").delta()
    }

    /// How many bits one run has.
    pub fn bits(&self) -> usize {
        self.attacked.len() * self.features
    }

    /// The adversary's colluders: the last ones that are not attacked.
    pub(crate) fn colluders(&self) -> Vec<usize> {
        let count = self.masking.map_or(0, |masking| masking.trust.colluders());
        (0..self.names.len()).rev().filter(|k| !self.attacked.contains(k)).take(count).collect()
    }

    /// One run with fresh bits; `trial` names its streams of seeded noise.
    pub fn run(&self, trial: u32, seed: u64) -> Result<Seen, RoundError> {
        let (features, clients) = (self.features, self.names.len());
        let mut rng = Stream { trial, client: 0, round: 0 }.fast(seed ^ BITS);
        let mut bits = || (0..features).map(|_| rng.random_bool(0.5)).collect::<Vec<bool>>();
        let bits: Vec<Vec<bool>> = self.attacked.iter().map(|_| bits()).collect();
        let quiet = self.quiet();
        let known = [true, false].map(|bit| self.canaries(&vec![bit; features]));
        let canaries: Vec<Dataset> = bits.iter().map(|bits| self.canaries(bits)).collect();
        let colluders = self.colluders();
        let honest: Vec<usize> = (0..clients).filter(|k| !colluders.contains(k)).collect();
        let mut view = View::new(self);
        let mut tally = Tally::new(self, bits);
        for number in 1..=self.study.rounds() {
            let touches = self.study.algorithm().touches_records(number, self.study.rounds());
            let masks = self.masks.as_ref().filter(|_| touches);
            let masks = masks.map(|masks| masks.round(clients, trial, number, features));
            let mut heard = Heard::default();
            let mut next = view.released.clone();
            for &k in &honest {
                let own = self.attacked.iter().position(|a| *a == k);
                let data = own.map_or(&quiet, |i| &canaries[i]);
                let before = view.memory[k].clone();
                let budget = &self.budgets[k];
                let protection = Protection::On { budget, noise: &self.noise, masks: masks.as_ref(), trial };
                let (values, cost) = view.step(k, number, data, protection)?;
                if !matches!(cost, Cost::Mixed) && (own.is_some() || masks.is_some()) {
                    let after = std::mem::replace(&mut view.memory[k], before);
                    let replays = if own.is_some() { [&known[0], &known[1]] } else { [&quiet, &quiet] };
                    let [plus, minus] = replays.map(|data| view.replay(k, number, data));
                    view.memory[k] = after;
                    heard.add(&values, &plus?, &minus?, view.unit(k, number));
                }
                next[k * features..][..features].copy_from_slice(&values);
            }
            view.released = next;
            match masks {
                Some(masks) => {
                    let known = |scales: &MaskedScales| self.known_masks(scales, &masks, &honest, &colluders, &mut rng);
                    tally.add_masked(number, &heard, &honest, known);
                }
                None if touches => tally.add(number, &heard),
                None => {}
            }
        }
        Ok(tally.seen())
    }

    /// What a recorded run told: `released` holds what all clients released in every round, flat; bits are those of the attacked clients. With masks,
    /// `known` adds the mask of an honest client with a colluder in a round, in steps.
    pub(crate) fn hear(
        &self,
        released: &[Vec<f64>],
        bits: Vec<Vec<bool>>,
        known: &KnownMask,
    ) -> Result<Seen, RoundError> {
        let (features, quiet) = (self.features, self.quiet());
        let canaries = [true, false].map(|bit| self.canaries(&vec![bit; features]));
        let colluders = self.colluders();
        let honest: Vec<usize> = (0..self.names.len()).filter(|k| !colluders.contains(k)).collect();
        let mut view = View::new(self);
        let mut tally = Tally::new(self, bits);
        for (number, values) in (1..).zip(released) {
            let touches = self.study.algorithm().touches_records(number, self.study.rounds());
            let mut heard = Heard::default();
            for &k in &honest {
                let attacked = self.attacked.contains(&k);
                if touches && (attacked || self.masking.is_some()) {
                    let replays = if attacked { [&canaries[0], &canaries[1]] } else { [&quiet, &quiet] };
                    let [plus, minus] = replays.map(|data| view.replay(k, number, data));
                    heard.add(&values[k * features..][..features], &plus?, &minus?, view.unit(k, number));
                }
                // The memory goes on as that of the client did: it follows from releases alone.
                view.step(k, number, &quiet, Protection::Off)?;
            }
            view.released.copy_from_slice(values);
            if touches && self.masking.is_some() {
                tally.add_masked(number, &heard, &honest, |scales| {
                    let (mut steps, mut all) = (vec![0; features], Vec::new());
                    for j in &honest {
                        steps.fill(0);
                        colluders.iter().for_each(|l| known(number, *j, *l, &scales.lattice, &mut steps));
                        all.extend(steps.iter().map(|steps| *steps as f64 * scales.lattice.step()));
                    }
                    all
                });
            } else if touches {
                tally.add(number, &heard);
            }
        }
        Ok(tally.seen())
    }

    /// Records of a client whose data is known: x = 0, so that its gradient is.
    fn quiet(&self) -> Dataset {
        let features = self.features;
        // With masks those that are not attacked have the study's number of records, so that their own noise is the least.
        let records =
            self.masking.map_or(1.0, |m| 2.0 * self.clip.get() / m.reference.get()).round().clamp(1.0, 1e6) as usize;
        self.stored(&vec![0.0; records * features], &vec![1.0; records])
    }

    /// One record for each coordinate.
    fn canaries(&self, bits: &[bool]) -> Dataset {
        let features = bits.len();
        let mut rows = vec![0.0; features * features];
        (0..features).for_each(|p| rows[p * features + p] = self.canary.reach);
        let target = |bit: &bool| if *bit { self.canary.target } else { -self.canary.target };
        self.stored(&rows, &bits.iter().map(target).collect::<Vec<f64>>())
    }

    /// Records stored as the study's are.
    pub(crate) fn stored(&self, rows: &[f64], targets: &[f64]) -> Dataset {
        Dataset::with_layout(rows, targets, layout(&self.study, targets.len(), self.features))
    }
}

/// Keeps the bits apart from seeded noise.
const BITS: u64 = 0x6269_7473_2e2e_2e2e; // "bits...."

fn layout(study: &Study, records: usize, features: usize) -> RecordLayout {
    let divisor = study.divisor(records, || features as f64);
    let (clipping, precision) = (study.clipping(), study.spec().precision);
    RecordLayout { records, features, clipping, precision, divisor, rows: records }
}

/// All that is public in a run so far.
pub(crate) struct View<'a> {
    subject: &'a Subject,
    pub released: Vec<f64>,
    pub memory: Vec<Vec<f64>>,
    scratch: Scratch,
}

impl<'a> View<'a> {
    pub fn new(subject: &'a Subject) -> Self {
        let (features, clients) = (subject.features, subject.names.len());
        let memory = vec![vec![0.0; features * subject.study.memory(&subject.graph)]; clients];
        Self { subject, released: vec![0.0; features * clients], memory, scratch: Scratch::default() }
    }

    fn rules(&self) -> Rules<'a> {
        Rules { algorithm: self.subject.study.algorithm(), largest: LARGEST_VALUE }
    }

    fn run(&self) -> Run<'a> {
        let subject = self.subject;
        Run {
            rounds: subject.study.rounds(),
            graph: &subject.graph,
            problem: &subject.problem,
            robust: subject.robust.as_ref(),
        }
    }

    fn eta(&self, k: usize) -> Option<f64> {
        self.subject.study.spec().clients.get(&*self.subject.names.get(k)).and_then(|client| client.eta)
    }

    /// By how much a step moves where the gradient moves by one.
    fn unit(&self, k: usize, number: u32) -> f64 {
        let (round, algorithm) = (self.run().round(number, k, self.eta(k)), self.subject.study.algorithm());
        let gradient = Sensitivity::of_clipped_sum(self.subject.clip, 1, 1.0);
        algorithm.gain(&round).unwrap_or_else(|| algorithm.sensitivity(&round, gradient).get() / gradient.get())
    }

    /// What client k would release with these records and without noise. Its memory goes on.
    fn replay(&mut self, k: usize, number: u32, data: &Dataset) -> Result<Vec<f64>, RoundError> {
        let before = self.memory[k].clone();
        let released = self.step(k, number, data, Protection::Off);
        self.memory[k] = before;
        Ok(released?.0)
    }

    /// What client k releases in a round; its memory goes on.
    pub fn step(
        &mut self,
        k: usize,
        number: u32,
        data: &Dataset,
        protection: Protection,
    ) -> Result<(Vec<f64>, Cost), RoundError> {
        let features = self.subject.features;
        let (mut released, mut w) = (vec![0.0; features], vec![0.0; features]);
        let own = &self.released[k * features..][..features];
        let round = self.run().round(number, k, self.eta(k)).with_points(own, &self.released);
        let rules = self.rules();
        let state = State { memory: &mut self.memory[k], w: &mut w, released: &mut released };
        let cost = rules.round(&round, data.records(), protection, state, &mut self.scratch)?.cost();
        Ok((released, cost))
    }
}

/// What a round told about some clients, one after the other, in units of the gradient.
#[derive(Default)]
struct Heard {
    /// What was released, less the middle between what either bit would give without noise.
    centred: Vec<f64>,
    /// Half the distance between the two.
    signals: Vec<f64>,
}

impl Heard {
    fn add(&mut self, values: &[f64], plus: &[f64], minus: &[f64], unit: f64) {
        for ((v, plus), minus) in values.iter().zip(plus).zip(minus) {
            self.centred.push((v - (plus + minus) / 2.0) / unit);
            self.signals.push((plus - minus) / (2.0 * unit));
        }
    }
}

/// Adds up what is heard: log-likelihood ratios of the bits.
struct Tally<'a> {
    subject: &'a Subject,
    bits: Vec<bool>,
    ratios: Vec<f64>,
    /// Their claimed variances.
    variances: Vec<f64>,
    noise: Vec<f64>,
}

impl<'a> Tally<'a> {
    fn new(subject: &'a Subject, bits: Vec<Vec<bool>>) -> Self {
        let zeros = vec![0.0; subject.bits()];
        Self { subject, bits: bits.concat(), ratios: zeros.clone(), variances: zeros, noise: Vec::new() }
    }

    /// A data round of the attacked clients, whose noise has the variance (2 c1/D)^2/(2 phi).
    fn add(&mut self, number: u32, heard: &Heard) {
        let phi = self.subject.budgets[self.subject.attacked[0]].phi(number).get();
        let precision = 2.0 * phi / self.subject.moved.powi(2);
        for (i, (centred, signal)) in heard.centred.iter().zip(&heard.signals).enumerate() {
            self.ratios[i] += centred * signal * precision;
            self.variances[i] += signal * signal * precision;
            let sign = if self.bits[i] { 1.0 } else { -1.0 };
            self.noise.push((centred - sign * signal) * precision.sqrt());
        }
    }

    /// A masked data round of all honest clients, of which the adversary knows these masks. The adversary knows the masks of its colluders, and weighs what is left by the inverse covariance,
    /// [C^-1]_kj = [j = k]/d_k + c^2/(d_k d_j (1 - c^2 sum 1/d)).
    fn add_masked(
        &mut self,
        number: u32,
        heard: &Heard,
        honest: &[usize],
        known: impl FnOnce(&MaskedScales) -> Vec<f64>,
    ) {
        let subject = self.subject;
        let (features, k) = (subject.features, subject.attacked[0]);
        let Some(noise) = subject.masked_noise(k, number) else { return };
        let known = known(&noise);
        let h = honest.len() as f64;
        let (mask, floor, own) = (noise.mask * noise.mask, noise.floor * noise.floor, noise.own * noise.own);
        let (d_floor, d_own) = (floor + h * mask, own + h * mask);
        let rest = (h - 1.0) * floor / (d_floor * h) + own / (d_own * h);
        let spread = mask / (d_own * rest);
        for (i, j) in honest.iter().enumerate() {
            let weight = if *j == k { (1.0 + spread) / d_own } else { spread / d_floor };
            for p in 0..features {
                let residual = heard.centred[i * features + p] - known[i * features + p];
                // Only the attacked client has a signal.
                let at = honest.iter().position(|j| *j == k).expect("an attacked client is honest");
                let signal = heard.signals[at * features + p];
                self.ratios[p] += residual * weight * signal;
                if *j == k {
                    self.variances[p] += signal * signal * weight;
                }
            }
        }
    }

    /// Scores in units of their claimed standard deviation.
    fn seen(self) -> Seen {
        let scores =
            self.ratios.iter().zip(&self.variances).map(|(ratio, v)| if *v > 0.0 { ratio / v.sqrt() } else { 0.0 });
        let (scores, signals) = (scores.collect(), self.variances.iter().map(|v| v.sqrt()).collect());
        Seen { bits: self.bits, scores, signals, noise: self.noise }
    }
}

/// Scales of the noise of a masked round.
pub(crate) struct MaskedScales {
    pub lattice: MaskedLattice,
    mask: f64,
    floor: f64,
    own: f64,
}

impl Subject {
    fn masked_noise(&self, k: usize, number: u32) -> Option<MaskedScales> {
        let features = self.features;
        let canary = self.canaries(&vec![true; features]);
        let gradient = canary.records().gradient_sensitivity()?;
        let (lattice, own) = self.budgets[k].masked_noise(number, gradient, features)?;
        let step = lattice.step();
        Some(MaskedScales {
            mask: lattice.mask() as f64 * step,
            floor: lattice.floor() as f64 * step,
            own: own.scale as f64 * step,
            lattice,
        })
    }

    /// The part of every honest client's masks that the colluders know.
    ///
    /// Masks of pairs are drawn again. Masks that were drawn by their joint law u ~ N(0, c^2 (K I - 1 1^T)) have no pairs: what q colluders would know of
    /// them, a ~ N(0, q c^2 I) with u - a ~ N(0, c^2 (H I - 1 1^T)) independent of a, is drawn given u. Along 1 it is all of u; across,
    /// its mean is q/K of u and its variance c^2 q H/K.
    fn known_masks(
        &self,
        noise: &MaskedScales,
        masks: &RoundMasks,
        honest: &[usize],
        colluders: &[usize],
        rng: &mut impl rand::Rng,
    ) -> Vec<f64> {
        let features = self.features;
        let mut known = vec![0.0; honest.len() * features];
        if masks.is_paired() {
            let mut steps = vec![0; features];
            for (out, j) in known.chunks_exact_mut(features).zip(honest) {
                steps.fill(0);
                colluders.iter().for_each(|l| masks.add_mask(*j, *l, &noise.lattice, &mut steps));
                out.iter_mut().zip(&steps).for_each(|(out, steps)| *out = *steps as f64 * noise.lattice.step());
            }
            return known;
        }
        let (h, q) = (honest.len() as f64, colluders.len() as f64);
        let across = noise.mask * (q * h / (h + q)).sqrt();
        for (out, j) in known.chunks_exact_mut(features).zip(honest) {
            masks.sum_normal(*j, &noise.lattice, out);
        }
        for p in 0..features {
            let of = |values: &[f64]| values.iter().skip(p).step_by(features).sum::<f64>() / h;
            let drawn: Vec<f64> = honest.iter().map(|_| across * normal(rng)).collect();
            let (mean, mean_drawn) = (of(&known), drawn.iter().sum::<f64>() / h);
            for (i, drawn) in drawn.iter().enumerate() {
                let u = &mut known[i * features + p];
                *u = mean + q / (h + q) * (*u - mean) + drawn - mean_drawn;
            }
        }
        known
    }
}

fn normal(rng: &mut impl rand::Rng) -> f64 {
    Normal.sample(rng)
}
