"""The finding about one written word: what is said of it, and its figure as SVG."""
