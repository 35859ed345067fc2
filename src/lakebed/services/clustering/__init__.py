"""Clustering: small files become large ones, in an order that suits reads."""
