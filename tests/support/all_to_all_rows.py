"""Rows of an all-to-all experiment as a run would write them, made up from its formulas."""

from __future__ import annotations

from typing import Any

from experiments.collectives.all_to_all.row import AllToAllRow
from measure.results.row import defaults_of
from railyard.scale import goodput_share

GBPS, MTU = 400.0, 9000
SHARE = {"electrical": 1.0, "rotor": 1.0, "demand": 1.0, "multi-hop": 2.3, "valiant": 2.0}


def row(policy: str, **given: Any) -> dict[str, Any]:
    """One measured point; ``off`` how far measured is above the model."""
    off = given.pop("off", 1.01)
    n, size = given.get("n", 8), given.get("bytes_per_pair", 2_000_000_000)
    electrical = policy == "electrical"
    delay_ms = 0.0 if electrical else given.get("reconfiguration_delay_ms", 20.0)
    slot_ms, guard_ms = given.get("slot_ms"), 2.0
    light = (n - 1) * size / (GBPS * 1e9 / 8 * goodput_share(MTU))
    duty = None if slot_ms is None else (slot_ms - guard_ms) / (slot_ms + delay_ms)
    formula = light * (slot_ms + delay_ms) / slot_ms if slot_ms else light + (n - 1) * delay_ms / 1e3
    model = light / duty if duty else formula * SHARE[policy]
    sent = n * (n - 1) * size
    return {
        **defaults_of(AllToAllRow),
        "algorithm": "direct",
        "collective": "all_to_all",
        "bytes": n * size,
        "rounds": n - 1,
        "second_phase_rounds": 0,
        "experiment": "all-to-all",
        "study": given.get("study", ""),
        "fabric": "electrical" if electrical else "ocs",
        "policy": policy,
        "n": n,
        "bytes_per_pair": size,
        "reconfiguration_delay_ms": delay_ms,
        "slot_ms": slot_ms,
        "guard_ms": guard_ms,
        "time_s": model * off,
        "predicted_time_s": model,
        "formula_s": formula,
        "over_formula": model * off / formula,
        "slots": n - 1,
        "duty_cycle": duty and duty / off,
        "ideal_duty_cycle": None if slot_ms is None else slot_ms / (slot_ms + delay_ms),
        "goodput_gbps": (n - 1) * size * 8 / 1e9 / (model * off),
        "misdelivered": 0,
        "lost_packets": 0,
        "sent_bytes": sent,
        "received_bytes": sent,
        "payload_sent_bytes": sent,
        "payload_received_bytes": sent,
        "packets_lost": 0,
        "retransmissions": 0,
        "faithful": True,
        "verdict": "faithful",
        "checks": [{"name": "link rate", "value": 0.99, "limit": 0.9, "unit": "", "ok": True, "says": "99 %"}],
        "port_gbps": GBPS,
        "mtu": MTU,
        **given,
        **({"reconfiguration_delay_ms": 0.0} if electrical else {}),
    }


OPTICAL = ("rotor", "demand", "multi-hop", "valiant")
EVERY = ("electrical", *OPTICAL)


def whole_run() -> list[dict[str, Any]]:
    """Four studies, as the script would measure them."""
    sizes = (250_000_000, 500_000_000, 1_000_000_000, 2_000_000_000, 4_000_000_000)
    rows = [row(p, study="bytes", bytes_per_pair=s, off=1.0 + 2e7 / s) for p in EVERY for s in sizes]
    rows += [row(p, study="ranks", n=n, off=1.005 + n / 800) for p in EVERY for n in (4, 8, 16)]
    rows += [row(p, study="delay", reconfiguration_delay_ms=d) for p in OPTICAL for d in (10.0, 20.0, 50.0, 100.0)]
    rows += [row("electrical", study="delay")]
    slots = (50.0, 100.0, 200.0, 400.0)
    full = [{"slot_ms": s, "bytes_per_pair": round(s * 4e7)} for s in slots]
    rows += [row("rotor", study="slot", reconfiguration_delay_ms=d, **f) for f in full for d in (10.0, 50.0)]
    skew = {"electrical": 1.0, "rotor": 2.4, "valiant": 1.5, "demand": 1.2, "multi-hop": 2.0}
    return rows + [row(p, study="skew", time_s=0.9 * s, predicted_time_s=0.88 * s) for p, s in skew.items()]
