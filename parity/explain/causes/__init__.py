"""What a module may do wrong, each cause solved from the numbers of both sides."""
