//! Scratch: one drain with a trace.
#![allow(clippy::all, clippy::pedantic, clippy::print_stdout, clippy::unwrap_used, missing_docs)]
use tidegate_core::hint::Hints;
use tidegate_core::limit::{LimitConfig, Limiter, Seen, Admit, Ticket};
use tidegate_core::Mono;
use tidegate_sim::drain::{Client, Decision, World, drain, Tells, Dialect};
use tidegate_sim::limiter::{TOLD};
use tidegate_sim::scenario::Scenario;

struct T { l: Limiter, dt: f64, next: f64, acc: u64, refd: u64, last: u64, lastr: u64 , verbose: bool}
impl Client for T {
    type Ticket = Ticket;
    fn admit(&mut self, now: Mono) -> Decision<Ticket> {
        match self.l.admit(now) { Admit::Go(t) => Decision::Go(t), Admit::At(t) => Decision::At(t), Admit::Full => Decision::Full }
    }
    fn settle(&mut self, t: Ticket, now: Mono, seen: Seen, h: &Hints) {
        let s = now.as_secs_f64();
        let acc = matches!(seen, Seen::Accepted);
        if acc { self.acc += 1 } else { self.refd += 1; }
        if !acc && self.verbose { println!("  {s:9.3} refused seq {} cap {} | {}", format!("{t:?}").split("seq: ").nth(1).unwrap_or(""), self.l.cap(), ""); }
        self.l.settle(t, now, seen, h);
        if s >= self.next {
            println!("{s:8.2} acc {:6} (+{:5}) ref {:5} (+{:3}) out {:3} cap {:3} rate {:?} gate {:.2} {}", self.acc, self.acc-self.last, self.refd, self.refd-self.lastr, self.l.in_flight(), self.l.cap(), self.l.rate(), self.l.gate().as_secs_f64(), "");
            self.last = self.acc; self.lastr = self.refd;
            while self.next <= s { self.next += self.dt; }
        }
    }
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let (told, row, dt) = (&a[1], &a[2], a[3].parse::<f64>().unwrap());
    let verbose = a.len() > 4;
    let sc = Scenario::parse(include_str!("../../../scenarios/limiter.yaml")).unwrap();
    let told = TOLD.iter().find(|t| t.name == told).unwrap();
    for (name, world) in sc.limiter.unwrap().worlds() {
        if !name.contains(row.as_str()) { continue; }
        let world = World { tells: told.tells, ..world };
        let config = LimitConfig { in_flight_max: world.workers, ..LimitConfig::default() };
        let mut t = T { l: Limiter::new(&config), dt, next: 0.0, acc: 0, refd: 0, last: 0, lastr: 0, verbose };
        let o = drain(&world, &mut t, sc.seed);
        println!("{name}: {:.2}/{:.2} earliest {:.2} finish {:.2}", o.utilisation(), o.refused_percent(), o.earliest, o.finish);
        return;
    }
}
