"""Chen, Klivans & Meka: learning any one-hidden-layer network to a chosen error."""
