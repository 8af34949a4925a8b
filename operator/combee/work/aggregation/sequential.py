"""``Sequential``: one example at a time. Its batch is one reflection, and goes the way of a scan of one leaf."""

from __future__ import annotations

from combee.work.aggregation.parallel_scan import scan

learn = scan
