"""FaPES on one host, really: an elastic training job and an inference server share its cores."""
