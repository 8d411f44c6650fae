"""What a model's name means, how a server's model is asked, and the shipped policy."""
