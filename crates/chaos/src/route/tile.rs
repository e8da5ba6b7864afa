//! A tile service: `/tiles/{z}/{x}/{y}.png` and `/tiles/wms?bbox=…`. Each tile is a small PNG that
//! holds its own address, so that a test can tell them apart. A share of the places has no tile
//! (`no_match`).

use crate::config::Config;
use crate::fate::RowFate;
use crate::hash;
use crate::reply::ResponseDraft;
use crate::wire::ReceivedRequest;
use crate::world;

pub(super) fn answer(config: &Config, request: &ReceivedRequest) -> ResponseDraft {
    let target = request.target.trim_start_matches("/tiles/");
    let draw = hash::bytes(config.seed ^ 11, target.as_bytes()) as f64 / u64::MAX as f64;
    if draw < config.no_match {
        return ResponseDraft { row: RowFate::NoMatch, ..ResponseDraft::new(404, "text/plain", "no tile\n") };
    }
    ResponseDraft::new(200, "image/png", world::tile(target)).worked()
}

pub(super) fn refusal(status: u16) -> ResponseDraft {
    let body = "<?xml version=\"1.0\"?><ServiceExceptionReport><ServiceException>the service is busy\
                </ServiceException></ServiceExceptionReport>";
    ResponseDraft::new(status, "text/xml", body)
}
