"""The one tolerance of float64 comparisons, and why it is what it is."""

# A float64 carries about 16 digits (machine epsilon 2.2e-16). The longest calculations compared here, full
# enumerations of some thousands of terms, lose three or four of them; platforms differ in the last one.
# 1e-10 leaves room for that and none for a wrong formula: those differ in the first few digits.
RTOL = 1e-10
