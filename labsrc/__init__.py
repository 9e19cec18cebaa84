"""The objectives of language-model alignment as small, exact, tested functions.

Every formula of the book lives here once, in torch: KL divergences and their estimators, the closed
form of KL-regularised RLHF, preference losses, group advantages, the policy-gradient surrogates, and
the losses composed of them. Import a module by its subject, for instance ``from labsrc import kl``.
"""

__version__ = "0.1.0"
