//! One peer from start to end.

use std::sync::Arc;

use crate::PeerError;
use crate::metrics::Metrics;
pub use crate::options::{Confirmed, NoiseSpread, Options, Source};
use crate::page::{Board, Server, Site};
pub use crate::stage::Report;
use crate::stage::{Audience, run_stages};
pub use crate::update::{Started, Update};

/// Runs a peer until the study is finished, it is interrupted, or it must stop.
///
/// A study that standardises its columns privately, or that has intervals or a private score, is run in stages: first the moments, whose last releases all peers
/// pass on to each other, then the study with the typical values that follow from them, then one closing release for the model that came out. What follows from a
/// stage is part of the next one's digest, so peers that hold different ones do not go on together. It is written down before
/// the next stage starts and read from there ever after: releases that arrive later must not start it anew, which would spend its budget twice.
pub fn run(options: &Options, observe: &mut dyn FnMut(Update)) -> Result<Report, PeerError> {
    let metrics = Arc::new(Metrics::default());
    let mut board = options.page.map(|_| Board::new(&options.study));
    let _servers = serve(options, &metrics, board.as_ref(), observe)?;
    let report = run_stages(options, &mut Audience { metrics, board: board.as_mut(), observe });
    if let Some(board) = &mut board {
        board.end(report.as_ref().map(|report| report.interrupted).map_err(ToString::to_string));
    }
    report
}

/// Serves metrics and the page, each where the options say.
fn serve(
    options: &Options,
    metrics: &Arc<Metrics>,
    board: Option<&Board>,
    observe: &mut dyn FnMut(Update),
) -> Result<Vec<Server>, PeerError> {
    let mut servers = Vec::new();
    // The page's server has the metrics too.
    if let Some(address) = options.metrics.filter(|_| options.metrics != options.page) {
        servers.push(Server::start(address, Site { metrics: Some(metrics.clone()), ..Site::default() })?);
    }
    if let (Some(address), Some(board)) = (options.page, board) {
        let (metrics, page, token) = (Some(metrics.clone()), Some(board.feed()), options.page_token.clone());
        let server = Server::start(address, Site { metrics, page, act: None, token })?;
        tracing::info!(page = server.url, "the page is served");
        observe(Update::Served(&server.url));
        servers.push(server);
    }
    Ok(servers)
}
