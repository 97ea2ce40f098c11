"""How statements are written: the builder, expressions evaluated in place, transposes in registers."""
