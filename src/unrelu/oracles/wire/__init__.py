"""What goes over the wire: how points become a request, and a response answers."""
