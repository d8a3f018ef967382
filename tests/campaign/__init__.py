"""Small runs are disturbed in every way that is known, and must end as documented: ``scripts/test.sh --campaign N``."""
