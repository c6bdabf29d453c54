//! The five figures of section V: what they show, and which cases are behind them.

use crate::{Case, EPSILONS, LEARNING_EPSILON, Setting, Task};

/// The kinds of plot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureKind {
    /// Error over rounds at one budget.
    Learning,
    /// Error after the last round over budgets.
    Tradeoff,
}

/// One plot of section V.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figure {
    /// What is solved.
    pub task: Task,
    /// What is shown.
    pub kind: FigureKind,
}

impl Figure {
    /// The five of the paper, in its order.
    pub const ALL: [Figure; 5] = [
        Figure { task: Task::ElasticNet, kind: FigureKind::Learning },
        Figure { task: Task::ElasticNet, kind: FigureKind::Tradeoff },
        Figure { task: Task::Lad, kind: FigureKind::Learning },
        Figure { task: Task::Ridge, kind: FigureKind::Learning },
        Figure { task: Task::Ridge, kind: FigureKind::Tradeoff },
    ];

    /// The word in file names and on the command line.
    pub fn name(self) -> String {
        let kind = match self.kind {
            FigureKind::Learning => "learning",
            FigureKind::Tradeoff => "tradeoff",
        };
        format!("{}-{kind}", self.task.name())
    }

    /// The budgets it shows.
    pub fn epsilons(self) -> &'static [f64] {
        match self.kind {
            FigureKind::Learning => &[LEARNING_EPSILON],
            FigureKind::Tradeoff => &EPSILONS,
        }
    }

    /// The runs behind it.
    pub fn cases(self) -> Vec<Case> {
        let (setting, task) = (Setting::PAPER, self.task);
        let of = |&method| self.epsilons().iter().map(move |&epsilon| Case { setting, task, method, epsilon });
        task.methods().iter().flat_map(of).collect()
    }
}
