"""Interactive labs: `labs.tilt()` is live in a notebook, and the same lab stands in the page.

A lab is a `Lab` declared in a module of its own and imported here, and a script of the same name in
book/_static/labs with the twin of its `compute`.
"""

from labsrc.labs.advantages import advantages as advantages
from labsrc.labs.aggregation import aggregation as aggregation
from labsrc.labs.bandit import bandit as bandit
from labsrc.labs.baseline_bias import baseline_bias as baseline_bias
from labsrc.labs.clip import clip as clip
from labsrc.labs.dpo import dpo as dpo
from labsrc.labs.kl_estimators import kl_estimators as kl_estimators
from labsrc.labs.lab import Lab
from labsrc.labs.ledger import ledger as ledger
from labsrc.labs.replay import replay as replay
from labsrc.labs.tilt import tilt as tilt

LABS = {lab.name: lab for lab in list(vars().values()) if isinstance(lab, Lab)}
