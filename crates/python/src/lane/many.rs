//! Many requests through a lane: a bounded window of calls, driven by one task.
//!
//! Requests are taken from the caller's iterable as there is room for them. One task polls all calls
//! of the window, so a call costs no task of its own. To wake a thread costs as much as half a call, so
//! the caller is woken for a quarter of the window, or for what has come within [`LINGER`]. When the
//! iterator is dropped, so are its calls.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::stream::{self, BoxStream, StreamExt};
use pyo3::exceptions::{PyStopAsyncIteration, PyStopIteration};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyString};
use tidegate_client::call::{Later, given_up, unwatched};
use tidegate_client::http::Request;
use tidegate_client::lock::lock;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::live::LiveLane;
use super::request::{RequestArguments, request};
use super::response::{PatientOutcome, PyResponse};
use crate::bridge::{LINGER, ReadyValue};
use crate::{bridge, errors, runtime};

/// What the task of a window says.
enum WindowAnswer {
    /// The answer to a request, with its URL.
    One(Box<(String, PatientOutcome)>),
    /// The lane is shut for too long: nothing else is answered.
    Shut(Later),
}

/// Calls under way for one iterable of requests.
struct CallWindow {
    live: Arc<LiveLane>,
    requests: mpsc::Sender<Request>,
    answers: Arc<tokio::sync::Mutex<mpsc::Receiver<Vec<WindowAnswer>>>>,
    task: AbortHandle,
    state: Arc<Mutex<CallWindowState>>,
    size: usize,
}

#[derive(Default)]
struct CallWindowState {
    /// Requests whose answer was not given yet.
    open: usize,
    ready: VecDeque<Box<(String, PatientOutcome)>>,
    /// All requests have been taken.
    is_drained: bool,
}

impl CallWindowState {
    /// Takes in what the task said.
    fn take_in(&mut self, came: Vec<WindowAnswer>) {
        for answer in came {
            match answer {
                WindowAnswer::One(answered) => self.ready.push_back(answered),
                WindowAnswer::Shut(later) => {
                    // What is open has no other answer, and nothing else is asked.
                    for _ in self.ready.len()..self.open {
                        self.ready.push_back(Box::new((String::new(), Err(later.clone()))));
                    }
                    self.is_drained = true;
                }
            }
        }
    }
}

/// Waits for an answer and those that come soon after it, at most `most`; false if no more come.
async fn gather(
    calls: &mut BoxStream<'_, WindowAnswer>,
    under_way: &AtomicUsize,
    came: &mut Vec<WindowAnswer>,
    most: usize,
) -> bool {
    let Some(first) = calls.next().await else { return false };
    came.push(first);
    let mut linger = pin!(tokio::time::sleep(LINGER));
    while came.len() < most {
        let others = async {
            if under_way.load(Ordering::Relaxed) > 0 {
                linger.as_mut().await;
            }
        };
        tokio::select! {
            biased;
            next = calls.next() => match next {
                Some(answered) => came.push(answered),
                None => return false,
            },
            () = others => break,
        }
    }
    true
}

impl CallWindow {
    fn new(py: Python<'_>, live: Arc<LiveLane>, size: usize, ordered: bool) -> PyResult<CallWindow> {
        let exchange = live.exchange(py)?.clone();
        let (requests, taken) = mpsc::channel::<Request>(size);
        let (answer, answers) = mpsc::channel::<Vec<WindowAnswer>>(size);
        let own = live.clone();
        let work = async move {
            let (lane, patience) = (&own.handle, own.settings.patience);
            let (exchange, own) = (&exchange, &own);
            let taken = stream::unfold(taken, |mut taken| async move { Some((taken.recv().await?, taken)) });
            let (under_way, batch) = (&AtomicUsize::new(0), size.div_ceil(4));
            let calls = taken.map(|request| async move {
                under_way.fetch_add(1, Ordering::Relaxed);
                let request = &request;
                let call = |_| async move { Ok(exchange.call_in(lane, request, own.chance()).await) };
                let outcome = unwatched(lane, patience, call, |_| false).await;
                under_way.fetch_sub(1, Ordering::Relaxed);
                WindowAnswer::One(Box::new((request.url.to_string(), outcome)))
            });
            let mut calls: BoxStream<'_, WindowAnswer> =
                if ordered { calls.buffered(size).boxed() } else { calls.buffer_unordered(size).boxed() };
            // One watch for all calls.
            let mut shut = pin!(given_up(lane, patience));
            loop {
                let mut came = Vec::with_capacity(batch);
                let is_open = tokio::select! {
                    biased;
                    is_open = gather(&mut calls, under_way, &mut came, batch) => is_open,
                    later = &mut shut => {
                        came.push(WindowAnswer::Shut(later));
                        false
                    }
                };
                if answer.send(came).await.is_err() || !is_open {
                    return;
                }
            }
        };
        let task = live.runtime.spawn(work).abort_handle();
        let (answers, state) = (Arc::new(tokio::sync::Mutex::new(answers)), Arc::default());
        Ok(CallWindow { live, requests, answers, task, state, size })
    }

    /// Takes requests while there is room for a good number of them.
    fn fill(&self, py: Python<'_>, input: &Bound<'_, PyIterator>) -> PyResult<()> {
        let room = {
            let state = lock(&self.state);
            let room = self.size.saturating_sub(state.open);
            if state.is_drained || (room < self.size.div_ceil(4) && !state.ready.is_empty()) {
                0
            } else {
                room
            }
        };
        for _ in 0..room {
            let Some(item) = input.clone().next() else {
                lock(&self.state).is_drained = true;
                break;
            };
            let made = request_of(py, &self.live, &item?)?;
            lock(&self.state).open += 1;
            // There is room for all that are open; a task that has ended has said why.
            let _ = self.requests.try_send(made);
        }
        Ok(())
    }

    /// The next answer that is ready.
    fn pop(&self, py: Python<'_>) -> PyResult<Option<Py<PyResponse>>> {
        let answered = {
            let mut state = lock(&self.state);
            let Some(answer) = state.ready.pop_front() else { return Ok(None) };
            state.open = state.open.saturating_sub(1);
            answer
        };
        let (url, outcome) = *answered;
        let exchange = self.live.exchange(py)?;
        Py::new(py, PyResponse::of(&self.live.handle, exchange, url, outcome)).map(Some)
    }

    fn is_done(&self) -> bool {
        let state = lock(&self.state);
        state.is_drained && state.open == 0
    }

    /// Waits for answers and takes them in; false if no more come. What it has taken is not lost if
    /// nobody waits for it any more.
    fn more(&self) -> impl Future<Output = bool> + Send + use<> {
        let (answers, state) = (self.answers.clone(), self.state.clone());
        async move {
            let Some(came) = answers.lock().await.recv().await else { return false };
            lock(&state).take_in(came);
            true
        }
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        if self.live.is_ours() {
            return Ok(());
        }
        Err(errors::failure(py, "these calls were begun in another process, which forked this one"))
    }
}

impl Drop for CallWindow {
    fn drop(&mut self) {
        if self.live.is_ours() {
            self.task.abort();
        }
    }
}

/// A request of `map`: a URL, or a dict with the arguments of a request.
fn request_of(py: Python<'_>, live: &LiveLane, item: &Bound<'_, PyAny>) -> PyResult<Request> {
    if let Ok(url) = item.cast::<PyString>() {
        let url = url.to_str()?;
        let from = RequestArguments { url, params: None, headers: None, data: None, json: None };
        return request(py, &live.settings, http::Method::GET, &from);
    }
    let bad =
        || errors::invalid(py, "map takes URLs, or dicts with url, method, params, headers, data and json");
    let dict = item.cast::<PyDict>().map_err(|_| bad())?;
    let mut url = String::new();
    let mut method = None;
    let (mut params, mut headers, mut data, mut json) = (None, None, None, None);
    for (name, value) in dict.iter() {
        match name.extract::<String>()?.as_str() {
            "url" => url = value.extract()?,
            "method" => {
                let text: String = value.extract()?;
                let read = text.to_ascii_uppercase().parse::<http::Method>();
                method =
                    Some(read.map_err(|_| errors::invalid(py, format!("{text:?} is not an HTTP method")))?);
            }
            "params" => params = Some(value),
            "headers" => headers = Some(value),
            "data" => data = Some(value),
            "json" => json = Some(value),
            _ => return Err(bad()),
        }
    }
    let has_body = data.is_some() || json.is_some();
    let method = method.unwrap_or(if has_body { http::Method::POST } else { http::Method::GET });
    let from = RequestArguments {
        url: &url,
        params: params.as_ref(),
        headers: headers.as_ref(),
        data: data.as_ref(),
        json: json.as_ref(),
    };
    request(py, &live.settings, method, &from)
}

/// The responses of many requests.
#[pyclass(name = "ResponseIterator", module = "tidegate._core", frozen)]
pub(crate) struct PyResponseIterator {
    window: CallWindow,
    input: Py<PyIterator>,
}

impl PyResponseIterator {
    pub(crate) fn new(
        py: Python<'_>,
        live: Arc<LiveLane>,
        requests: &Bound<'_, PyAny>,
        size: usize,
        ordered: bool,
    ) -> PyResult<PyResponseIterator> {
        let input = requests.try_iter()?.unbind();
        Ok(PyResponseIterator { window: CallWindow::new(py, live, size, ordered)?, input })
    }
}

#[pymethods]
impl PyResponseIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Py<PyResponse>> {
        self.window.check(py)?;
        loop {
            self.window.fill(py, self.input.bind(py))?;
            if let Some(response) = self.window.pop(py)? {
                return Ok(response);
            }
            if self.window.is_done() {
                return Err(PyStopIteration::new_err(()));
            }
            if !runtime::wait(py, self.window.more())? {
                return Err(errors::failure(py, "the calls broke off: an internal error"));
            }
        }
    }
}

/// The responses of many requests, to be awaited one by one.
#[pyclass(name = "AsyncResponseIterator", module = "tidegate._core", frozen)]
pub(crate) struct PyAsyncResponseIterator {
    inner: PyResponseIterator,
}

impl PyAsyncResponseIterator {
    pub(crate) fn new(inner: PyResponseIterator) -> PyAsyncResponseIterator {
        PyAsyncResponseIterator { inner }
    }
}

#[pymethods]
impl PyAsyncResponseIterator {
    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, inner) = (slf.py(), &slf.get().inner);
        inner.window.check(py)?;
        inner.window.fill(py, inner.input.bind(py))?;
        if let Some(response) = inner.window.pop(py)? {
            return Ok(Bound::new(py, ReadyValue::new(response.into_any()))?.into_any());
        }
        if inner.window.is_done() {
            return Err(PyStopAsyncIteration::new_err(()));
        }
        let own = slf.clone().unbind();
        bridge::spawn(py, inner.window.more(), move |py, _| {
            let response = own.get().inner.window.pop(py)?;
            response
                .map(Py::into_any)
                .ok_or_else(|| errors::failure(py, "the calls broke off: an internal error"))
        })
    }
}
