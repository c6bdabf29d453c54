//! The input of a client in a round, apart from its records: all of it is public or follows from messages already sent.

use super::Robust;
use crate::graph::Graph;
use crate::problem::Problem;
use crate::records::{Records, Scratch};
use crate::simd::over;

/// The public facts of a run that are the same in all rounds and for all clients.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// T.
    pub rounds: u32,
    /// The public graph.
    pub graph: &'a Graph,
    /// The public part of the problem.
    pub problem: &'a Problem,
    /// How what neighbours say is bounded, if some of them may lie.
    pub robust: Option<&'a Robust>,
}

/// Round n at client k.
#[derive(Debug, Clone, Copy)]
pub struct Round<'a> {
    /// What is the same in all rounds.
    pub run: Run<'a>,
    /// n, from 1.
    pub number: u32,
    /// k.
    pub client: usize,
    /// This client's own step size instead of the algorithm's, if the study gives it one.
    pub eta: Option<f64>,
    /// Who the neighbours are, in ascending order. Fewer than in the graph if edges were dropped.
    pub neighbours: &'a [u32],
    /// How many trials of a simulation are computed side by side. Points, and vectors in memory, then have P times as many numbers: number p of trial t
    /// is at p `trials` + t.
    pub trials: usize,
    /// The clients that will be computed next, from this one on, where that is known: noise for simulations is drawn for several at a time.
    pub upcoming: &'a [u32],
    /// w~_k(n-1).
    pub own: &'a [f64],
    /// Released points, one after the other.
    points: &'a [f64],
    /// Which of `points` are the neighbours', in the order of `neighbours`.
    slots: &'a [u32],
}

impl<'a> Run<'a> {
    /// Round n at client k before anything is known of released points: enough for a sensitivity.
    #[inline]
    pub fn round(self, number: u32, client: usize, eta: Option<f64>) -> Round<'a> {
        let neighbours = self.graph.neighbours(client);
        Round {
            run: self,
            number,
            client,
            eta,
            neighbours,
            trials: 1,
            upcoming: &[],
            own: &[],
            points: &[],
            slots: &[],
        }
    }
}

impl<'a> Round<'a> {
    /// The same with w~_k(n-1) and all clients' points, laid out by client.
    #[inline]
    pub fn with_points(self, own: &'a [f64], points: &'a [f64]) -> Self {
        Self { own, points, slots: self.neighbours, ..self }
    }

    /// The same with points that lie elsewhere: the neighbours' are at `slots`.
    #[inline]
    pub fn with_slots(self, slots: &'a [u32]) -> Self {
        Self { slots, ..self }
    }

    /// The same with w~_k(n-1) and the points of `neighbours` alone, one after the other: `slots` counts them from 0.
    ///
    /// # Panics
    /// If there is not one point of the length of `own` for each neighbour.
    pub fn among(self, neighbours: &'a [u32], slots: &'a [u32], own: &'a [f64], points: &'a [f64]) -> Self {
        assert!(slots.len() == neighbours.len() && points.len() == own.len() * slots.len(), "one point per neighbour");
        Self { neighbours, own, points, slots, ..self }
    }

    /// The same with only these of its neighbours, whose points are at `slots`; the others were lost.
    pub fn left_with(self, neighbours: &'a [u32], slots: &'a [u32]) -> Self {
        Self { neighbours, slots, ..self }
    }

    /// The same as if the client had released another point in the round before.
    pub fn with_own(self, own: &'a [f64]) -> Self {
        Self { own, ..self }
    }

    /// d_k.
    #[inline]
    pub fn degree(&self) -> usize {
        self.neighbours.len()
    }

    /// K.
    #[inline]
    pub fn clients(&self) -> usize {
        self.run.graph.clients()
    }

    /// w~_l(n-1) of the neighbours, by ascending id.
    pub fn neighbour_points(&self) -> impl Iterator<Item = &[f64]> {
        let features = self.own.len();
        self.slots.iter().map(move |&slot| &self.points[slot as usize * features..][..features])
    }

    /// sum_l (w~_k(n-1) - w~_l(n-1)) over the neighbours, by ascending id.
    pub fn disagreement<'b>(&self, buffer: &'b mut Vec<f64>) -> &'b [f64] {
        buffer.resize(self.own.len(), 0.0);
        let mut neighbours = self.neighbour_points();
        match neighbours.next() {
            Some(first) => set(buffer, self.own, first, |_, own, other| own - other),
            None => buffer.fill(0.0),
        }
        for point in neighbours {
            set(buffer, self.own, point, |sum, own, other| sum + (own - other));
        }
        buffer
    }

    /// w~_k(n-1) + sum_l a_kl (w~_l(n-1) - w~_k(n-1)), by ascending id, with Metropolis weights
    /// a_kl = 1/(1 + max(d_k, d_l)).
    ///
    /// The degrees are those of the whole graph, also when edges were dropped: both ends of an edge must agree on its
    /// weight.
    pub fn neighbourhood_mean(&self, out: &mut [f64]) {
        out.copy_from_slice(self.own);
        for (&l, point) in self.neighbours.iter().zip(self.neighbour_points()) {
            let weight = self.metropolis(l);
            set(out, self.own, point, |sum, own, point| sum + weight * (point - own));
        }
    }

    /// a_kl.
    pub(super) fn metropolis(&self, neighbour: u32) -> f64 {
        let graph = self.run.graph;
        1.0 / (1.0 + graph.degree(self.client).max(graph.degree(neighbour as usize)) as f64)
    }

    /// `scale` times the mean clipped loss gradient at a public point: the only part of a step that depends on records.
    pub fn loss_gradient(&self, records: Records, at: &[f64], scale: f64, scratch: &mut Scratch, out: &mut [f64]) {
        records.gradients(self.run.problem.loss, at, self.trials, scale, scratch, out);
    }

    /// Adds `scale` (lambda/K) R'(w~_k(n-1)), which is public.
    pub fn add_regularizer(&self, scale: f64, out: &mut [f64]) {
        self.add_regularizer_at(self.own, scale, out);
    }

    /// Adds `scale` (lambda/K) R'(w) at a public point.
    pub fn add_regularizer_at(&self, w: &[f64], scale: f64, out: &mut [f64]) {
        self.run.problem.add_regularizer_subgradient(scale, self.clients(), w, self.trials, out);
    }

    /// The exact step for `scale` (lambda/K) R from a public point.
    pub fn prox(&self, scale: f64, u: &mut [f64]) {
        self.run.problem.prox(scale, self.clients(), self.trials, u);
    }
}

/// target = f(target, a, b) in every coordinate.
#[inline(always)]
fn set(target: &mut [f64], a: &[f64], b: &[f64], f: impl Fn(f64, f64, f64) -> f64) {
    over(target.len(), || {
        for ((target, a), b) in target.iter_mut().zip(a).zip(b) {
            *target = f(*target, *a, *b);
        }
    });
}
