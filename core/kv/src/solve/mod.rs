//! Choosing a plan: from what each format loses in each layer ([`Sensitivity`]) and a budget
//! ([`KvBudget`]) to the formats that lose least ([`solve`]), and to all plans worth having
//! ([`front`]). Also plans in words ([`PlanText`]) and in ModelOpt's metadata ([`ModelOptKv`]).
//!
//! The pieces, each a file: candidates that others dominate are left out (`pareto`), alike layers
//! are decided together (`cluster`), a budget becomes bytes (`budget`), and one candidate of each
//! layer is chosen by a table of all costs or by slopes (`knapsack`, `greedy`).
//!
//! Formats are names here: what a format is, and what it costs, the measurement says.

mod budget;
mod cluster;
mod error;
mod greedy;
mod knapsack;
mod modelopt;
mod pareto;
mod plan_text;
mod sensitivity;
mod solution;
mod solver;
#[cfg(test)]
mod testing;

pub use budget::{KvBudget, KvMeasure};
pub use cluster::{ClusterRule, clusters};
pub use error::{ModelOptError, PlanTextError, SensitivityError, SolveError, UnknownLayerFormat};
pub use modelopt::{ModelOptFile, ModelOptKv, ModelOptLayer, ModelOptProducer, ModelOptScheme};
pub use plan_text::{PlanPiece, PlanText};
pub use sensitivity::{
    Candidate, LayerSensitivity, LossSource, MAX_CANDIDATES, MAX_LAYERS, MeasuredModel, PairLoss,
    SENSITIVITY_VERSION, Sensitivity, SideLoss, kept_bytes,
};
pub use solution::{
    ChoiceStep, Considered, Front, FrontPoint, LayerChoice, Solution, Verdict, plan_of_formats,
};
pub use solver::{SolveOptions, front, solve};
