"""Pictures of bandwidth and of strategies, drawn from records of `bench/results`.

python docs/figures/measured.py docs/images
"""

from __future__ import annotations

import sys
from pathlib import Path

from style import ROOT, record

sys.path.insert(0, str(ROOT))
from bench.pictures import plot_advection, plot_exchange

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    exchange = record("exchange-r4-h200")
    title = f"exchange between 4 ranks on {exchange['device']}"
    plot_exchange(folder / "exchange-h200.png", title, exchange["result"])
    results = [record(f"advection-420-r{ranks}-h200")["result"] for ranks in (1, 2, 4)]
    plot_advection(folder / "advection-h200.png", "advection of 420³ points on H200s", results)
